"""A front: a way to use a terminal. The conversation behind it is a `Terminal` (terminal.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from hermes.errors import UsageError
from hermes.store.sessions import Listed

T = TypeVar("T")

PROMPT, INDENT = "› ", "  "


class Typed(Struct, frozen=True):
    """What a person said, and how it is shown: a long text that was pasted has a mark in its place."""

    text: str
    shown: str


class Front(Protocol):
    """Passes on what is typed, and shows the rows of the terminal's screen."""

    redraws: bool
    """Whether what was shown can be drawn over."""

    @property
    def columns(self) -> int:
        """How wide it is now."""

    async def listen(self) -> None:
        """Pass on what is typed, until `close` or the end of the input."""

    def said(self, shown: str, /) -> None:
        """A message or command is taken up now."""

    def refresh(self) -> None:
        """The screen has changed."""

    async def show_aside(self) -> None:
        """Return when every finished row is on the terminal, while a person may be typing."""

    async def settle(self) -> None:
        """Return when every finished row is on the terminal."""

    async def lend(self, use: Callable[[], Awaitable[T]]) -> T:
        """Let something else have the terminal until it is done."""

    async def pick(self, listed: Sequence[Listed]) -> str | None:
        """Let the person choose a session; its id, None for none. Raises UsageError where rows cannot be redrawn."""

    def offer_draft(self, text: str) -> None:
        """Put a text into the prompt, unless the person has begun to type; where that is possible."""

    def close(self) -> None:
        """Stop listening."""


def which_session() -> UsageError:
    """What is said where no list can be shown to choose from."""
    return UsageError("which session?", hint="`/sessions` lists them")
