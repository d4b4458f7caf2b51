"""A cache of agents between messages. An agent is closed when it is evicted, but never during a turn."""

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
from hermes.agent.loop import unless_stopped
from hermes.agent.review import review_now
from hermes.memory.values import Ending
from hermes.scope import Group, Scope
from hermes.types import Session

log = logging.getLogger("hermes.gateway")


class Person(NamedTuple):
    """The author of a message, by the ids that the platform gave."""

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
    """Why the agent left the cache; None while it is cached."""


class AgentCache(Struct):
    """A cache of agents, keyed by session key, session, scope, the person of a direct chat, and the provider's
    signature. A person who is marked as the owner, or no longer is, therefore gets another agent."""

    make: MakeAgent
    signature: Signature | None
    """Return the provider's settings that an agent freezes; None without a provider."""
    largest: int
    idle: float
    now: Callable[[], float]
    _entries: OrderedDict[Hashable, _Entry] = field(default_factory=OrderedDict)
    """The least recently used first."""
    _making: WeakValueDictionary[Hashable, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def use(self, session: Session, key: str, scope: Scope, person: Person) -> AsyncIterator[Agent]:
        """Yield the agent for one message. A changed signature creates a new agent."""
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
        """Evict agents that are idle for too long, then the least recently used above the limit. Closes in the
        background."""
        for key, entry in list(self._entries.items()):
            expired = self.now() - entry.used_at > self.idle
            if not expired and len(self._entries) <= self.largest:
                return
            if not entry.users:
                self._retire(key, "idle")

    def retire(self, session_id: str) -> None:
        """Evict the agents of a session that another one replaced. Each is closed when its turn ends."""
        for key, entry in list(self._entries.items()):
            if entry.agent.session_id == session_id:
                self._retire(key, "new")

    async def close(self, why: Ending = "shutdown") -> None:
        """Close every agent and wait. Messages that no review has read yet are read after the next start."""
        self._ending.set()
        for key in list(self._entries):
            self._retire(key, why, at_work=True)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _enter(self, key: Hashable, session: Session, scope: Scope, person: Person) -> _Entry:
        """Find or create an entry and count one more user. Only callers of the same entry wait for each other."""
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
        task = asyncio.create_task(self._close_agent(entry.agent, entry.retired))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_agent(self, agent: Agent, why: Ending) -> None:
        """Close an agent. Unless the process is ending, a review first reads the unread messages."""
        if agent.turns and why != "settings":
            await unless_stopped(review_now(agent), self._ending)
        try:
            await agent.close(why)
        except Exception:  # a background task: no caller could handle it
            log.exception("the agent of session %s did not close", agent.session_id)
