"""Agents that stay warm between messages. One is closed when it is evicted, and never while it is at work."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from hermes.agent.agent import Agent
from hermes.types import Session

MakeAgent: TypeAlias = Callable[[Session], Awaitable[Agent]]
Signature: TypeAlias = Callable[[], Hashable]


@dataclass(slots=True)
class _Entry:
    agent: Agent
    used_at: float
    users: int = 0
    stale: bool = False


@dataclass(slots=True)
class AgentCache:
    """Keyed by session key, session, the person of a direct chat, and what a provider has frozen into an agent."""

    make: MakeAgent
    signature: Signature
    largest: int
    idle: float
    now: Callable[[], float]
    _entries: OrderedDict[Hashable, _Entry] = field(default_factory=OrderedDict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def use(self, session: Session, key: str, person: tuple[str | None, str | None]) -> AsyncIterator[Agent]:
        """The agent for one message. A changed signature gives a fresh one."""
        full_key = (key, session.id, person if session.chat_type == "dm" else None, self.signature())
        entry = await self._enter(full_key, session)
        entry.users += 1
        try:
            yield entry.agent
        finally:
            entry.users -= 1
            entry.used_at = self.now()
            if entry.stale and not entry.users:
                await entry.agent.close()
            await self.evict()

    async def evict(self) -> None:
        """Close what is idle for too long, and the longest unused above the limit."""
        expired = [key for key, entry in self._entries.items() if self.now() - entry.used_at > self.idle]
        surplus = list(self._entries)[: max(0, len(self._entries) - self.largest)]
        for key in dict.fromkeys([*expired, *surplus]):
            if not self._entries[key].users:
                await self._entries.pop(key).agent.close()

    async def close(self) -> None:
        """Close every agent."""
        while self._entries:
            _, entry = self._entries.popitem()
            await entry.agent.close()

    async def _enter(self, key: tuple[Hashable, ...], session: Session) -> _Entry:
        async with self._making:
            if key not in self._entries:
                await self._retire_siblings(key)
                self._entries[key] = _Entry(await self.make(session), self.now())
            self._entries.move_to_end(key)
            return self._entries[key]

    async def _retire_siblings(self, key: tuple[Hashable, ...]) -> None:
        """Agents of the same session under another signature will not be asked again."""
        for other in [other for other in self._entries if isinstance(other, tuple) and other[:3] == key[:3]]:
            entry = self._entries.pop(other)
            entry.stale = True
            if not entry.users:
                await entry.agent.close()
