"""The context of a slash command: properties of the surface, and the actions that it offers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.agent.agent import Agent
from hermes.errors import UsageError
from hermes.llm.discover import ModelOffer
from hermes.memory.book import MemoryBook
from hermes.store.session_settings import ChosenModel
from hermes.types import Message

Surface = Literal["terminal", "chat"]
"""A chat is any conversation through a gateway: on a platform, or over HTTP."""
Word: TypeAlias = tuple[str, str]
"""A completion, and its meaning."""
MAX_DIGITS = 6


class Say(Struct, frozen=True):
    """A command's answer that starts a turn, as if the person had typed this text."""

    text: str


class Again(Struct, frozen=True):
    """A command's answer that repeats the last turn. `cause` identifies the command, `said` is the repeated message."""

    cause: str
    said: str = ""


Answer: TypeAlias = str | Say | Again
"""The result of a command: a text for the person, or a turn to start."""


class Beginning(Struct):
    """A session that the next message will begin, and its settings."""

    book: MemoryBook
    offer: ModelOffer | None = None
    title: str | None = None
    incognito: bool = False
    model: ChosenModel | None = None


class Console(Protocol):
    """A terminal's actions: switching between sessions, editing, copying, leaving."""

    async def list_sessions(self) -> str:
        """Return a readable list of the recent sessions."""

    async def recent_sessions(self, typed: str) -> Sequence[Word]:
        """Return completions of session ids; for typed text more of them, also by title."""

    async def resume(self, name: str) -> str:
        """Continue another session, and return a text for the person."""

    async def choose_session(self) -> str | None:
        """Let the person choose a session from a list, and return its id, or None. Raises UsageError if the terminal
        cannot show a list."""

    async def edit(self, text: str) -> str | None:
        """Open the text in the person's editor, and return the result; None if the editor failed. Raises UsageError
        without an editor."""

    async def copy(self, text: str) -> str:
        """Put a text into the clipboard, and return a description of how. Raises UsageError if that is impossible."""

    def offer_draft(self, text: str) -> None:
        """Put a text into the prompt after this command, for the person to edit, where possible."""

    def leave(self) -> None:
        """End the conversation after this command."""


class CommandContext(Protocol):
    """The place where a command was given, and its actions."""

    @property
    def surface(self) -> Surface: ...

    @property
    def cause(self) -> str:
        """Identifies this invocation of the command, also when it runs again after a crash."""

    @property
    def stop(self) -> asyncio.Event:
        """Set when the person stops the command."""

    @property
    def console(self) -> Console | None:
        """The console; None in a chat, which has only one session."""

    async def place(self) -> Agent | Beginning:
        """Return the agent of this session, or a Beginning before the first message."""

    def may_take_back(self, message: Message) -> bool:
        """Return True if the person who gives the command may retract this message."""

    async def begin_session(self) -> str:
        """Begin a new session, and return a text for the person."""


def console_of(here: CommandContext) -> Console:
    """Return the console, for commands that the table offers only with one."""
    assert here.console is not None, "the table offers it only where there is one"
    return here.console


async def agent_of(here: CommandContext, refusal: str) -> Agent:
    """Return the agent of this session. Raises UsageError with `refusal` before the first message."""
    place = await here.place()
    if isinstance(place, Beginning):
        raise UsageError(refusal)
    return place


def read_number(text: str) -> int:
    """Return a typed number; 0 if it is invalid or has more than six digits."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else 0
