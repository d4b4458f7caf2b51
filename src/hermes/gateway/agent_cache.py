"""Agents that stay warm between messages. One is closed when it is evicted, and never while it is at work."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct, field

from hermes.agent.agent import Agent
from hermes.agent.review import review_now
from hermes.agent.stopping import unless_stopped
from hermes.memory.values import Ending
from hermes.scope import Group, Scope
from hermes.types import Session

log = logging.getLogger("hermes.gateway")


class Person(NamedTuple):
    """Who speaks, by the ids the platform gave."""

    user_id: str | None = None
    user_id_alt: str | None = None


NOBODY = Person()

MakeAgent: TypeAlias = Callable[[Session, Scope, Person], Awaitable[Agent]]
Signature: TypeAlias = Callable[[], Awaitable[Hashable]]


class _Entry(Struct):
    agent: Agent
    signature: Hashable
    used_at: float
    users: int = 0
    retired: Ending | None = None
    """Why it was let go, once it was."""


class AgentCache(Struct):
    """Keyed by session key, session, scope, the person of a direct chat, and the provider's signature. So a person who
    is marked as the owner, or no longer is, gets another agent."""

    make: MakeAgent
    signature: Signature | None
    """None where nothing of the settings is frozen into an agent."""
    largest: int
    idle: float
    now: Callable[[], float]
    _entries: OrderedDict[Hashable, _Entry] = field(default_factory=OrderedDict)
    """The longest unused first."""
    _making: WeakValueDictionary[Hashable, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def use(self, session: Session, key: str, scope: Scope, person: Person) -> AsyncIterator[Agent]:
        """The agent for one message. A changed signature gives a fresh one."""
        speaker = NOBODY if isinstance(scope, Group) else person
        entry = await self._enter((key, session.id, scope, speaker), session, scope, speaker)
        try:
            yield entry.agent
        finally:
            entry.users -= 1
            entry.used_at = self.now()
            self._close_unused(entry)
            self.evict()

    def evict(self) -> None:
        """Let go what is idle for too long, and the longest unused above the limit. Closing keeps nobody waiting."""
        for key, entry in list(self._entries.items()):
            expired = self.now() - entry.used_at > self.idle
            if not expired and len(self._entries) <= self.largest:
                return
            if not entry.users:
                self._retire(key, "idle")

    def retire(self, session_id: str) -> None:
        """A new session took this one's place: let its agents go as soon as they are done."""
        for key, entry in list(self._entries.items()):
            if entry.agent.session_id == session_id:
                self._retire(key, "new")

    async def close(self, why: Ending = "shutdown") -> None:
        """Close every agent, and wait until all are. What a review has not read yet is read after the next start."""
        self._ending.set()
        for key in list(self._entries):
            self._retire(key, why, at_work=True)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _enter(self, key: Hashable, session: Session, scope: Scope, person: Person) -> _Entry:
        """Find or make an entry and count one more user of it. Only callers that want the same entry wait for each
        other."""
        signature = None if self.signature is None else await self.signature()
        lock = self._making.setdefault(key, asyncio.Lock())
        async with lock:
            entry = self._entries.get(key)
            if entry is None or entry.signature != signature:
                made = _Entry(await self.make(session, scope, person), signature, self.now())
                if entry is not None:
                    self._retire(key, "settings")
                entry = self._entries[key] = made
            entry.users += 1
            self._entries.move_to_end(key)
        return entry

    def _retire(self, key: Hashable, why: Ending, *, at_work: bool = False) -> None:
        entry = self._entries.pop(key)
        entry.retired = why
        if at_work:
            entry.users = 0
        self._close_unused(entry)

    def _close_unused(self, entry: _Entry) -> None:
        if entry.users or entry.retired is None:
            return
        task = asyncio.create_task(self._let_go(entry.agent, entry.retired))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _let_go(self, agent: Agent, why: Ending) -> None:
        """Close an agent that is not needed for now. Unless we are ending, a review reads what is unread first."""
        if agent.turns and why != "settings":
            await unless_stopped(review_now(agent), self._ending)
        try:
            await agent.close(why)
        except Exception:  # nobody waits for it who could be told
            log.exception("the agent of session %s did not close", agent.session_id)
