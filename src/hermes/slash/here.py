"""Where a slash command is given: what a surface tells of itself, and what can be done there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.errors import UsageError
from hermes.llm.offer import ModelOffer
from hermes.memory.book import MemoryBook
from hermes.store.chosen_models import ChosenModel
from hermes.types import Message

Surface = Literal["terminal", "chat"]
"""A chat is any conversation that comes through a gateway: of a platform, or over HTTP."""
Word: TypeAlias = tuple[str, str]
"""What may be typed, and what it means."""
MOST_DIGITS = 6


class Say(Struct, frozen=True):
    """A command's answer where it leads to a turn: this is said as if the person had typed it."""

    text: str


class Again(Struct, frozen=True):
    """A command's answer where the last turn is answered anew. `cause` is the command's own, `said` what was said."""

    cause: str
    said: str = ""


Answer: TypeAlias = str | Say | Again
"""What a command comes to: what the person is told, or a turn."""


class Beginning(Struct):
    """A session that the next message will begin, and what it will have."""

    book: MemoryBook
    offer: ModelOffer | None = None
    title: str | None = None
    incognito: bool = False
    model: ChosenModel | None = None


class Console(Protocol):
    """Where the owner goes from one session to another, and leaves."""

    async def list_sessions(self) -> str:
        """The sessions that were active last, to read."""

    async def recent_sessions(self, typed: str) -> Sequence[Word]:
        """The same sessions, to choose from by id; where something is typed many more, and by title too."""

    async def resume(self, name: str) -> str:
        """Go on with another session; what the person is told of it."""

    async def choose_session(self) -> str | None:
        """Let the person choose one of the sessions from a list; its id, None for none. Raises UsageError where the
        terminal cannot show one."""

    async def edit(self, text: str) -> str | None:
        """The text as the person's editor leaves it; None when that gave up. Raises UsageError where there is none."""

    async def copy(self, text: str) -> str:
        """Put a text into the clipboard; how that was done. Raises UsageError where nothing can take it."""

    def offer_draft(self, text: str) -> None:
        """Put a text into the prompt after this command, for the person to change; where that is possible."""

    def leave(self) -> None:
        """End the conversation after this command."""


class Here(Protocol):
    """Where a command was given, and what it can do there."""

    @property
    def surface(self) -> Surface: ...

    @property
    def cause(self) -> str:
        """Names this command as it was given once, also when it runs again after a crash."""

    @property
    def stop(self) -> asyncio.Event:
        """Set when the person does not want the command any more."""

    @property
    def console(self) -> Console | None:
        """None where there is one session alone, as in a chat."""

    async def place(self) -> Agent | Beginning:
        """The agent of this session, or the session that is still to begin."""

    def may_take_back(self, message: Message) -> bool:
        """Whether whoever gives the command may take back what this message says."""

    async def begin_session(self) -> str:
        """Go on in a new session; what the person is told of it."""


def console_of(here: Here) -> Console:
    """The console, for commands that the table offers only where there is one."""
    assert here.console is not None, "the table offers it only where there is one"
    return here.console


async def agent_of(here: Here, refusal: str) -> Agent:
    """The agent of this session. Raises UsageError, with the refusal, where it is still to begin."""
    place = await here.place()
    if isinstance(place, Beginning):
        raise UsageError(refusal)
    return place


def read_number(text: str) -> int:
    """A number that someone typed; 0 for what is none, or has more than six digits."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0
