"""Where a slash command is given: what a surface tells of itself, and what can be done there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.memory.book import MemoryBook

Surface = Literal["terminal", "chat"]
"""A chat is any conversation that comes through a gateway: of a platform, or over HTTP."""
Word: TypeAlias = tuple[str, str]
"""What may be typed, and what it means."""


class Beginning(Struct):
    """A session that the next message will begin, and what it will have."""

    book: MemoryBook
    title: str | None = None
    incognito: bool = False


class Console(Protocol):
    """Where the owner goes from one session to another, and leaves."""

    async def list_sessions(self) -> str:
        """The sessions that were active last, to read."""
        ...

    async def recent_sessions(self) -> Sequence[Word]:
        """The same sessions, to choose from."""
        ...

    async def resume(self, name: str) -> str:
        """Go on with another session; what the person is told of it."""
        ...

    def leave(self) -> None:
        """End the conversation after this command."""
        ...


class Here(Protocol):
    """Where a command was given, and what it can do there."""

    @property
    def surface(self) -> Surface: ...

    @property
    def stop(self) -> asyncio.Event:
        """Set when the person does not want the command any more."""
        ...

    @property
    def console(self) -> Console | None:
        """None where there is one session alone, as in a chat."""
        ...

    async def place(self) -> Agent | Beginning:
        """The agent of this session, or the session that is still to begin."""
        ...

    async def begin_session(self) -> str:
        """Go on in a new session; what the person is told of it."""
        ...
