"""Front ends: ways to show a conversation in a terminal. The conversation itself is a `Terminal` (terminal.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from hermes.errors import UsageError
from hermes.store.sessions import Listed

T = TypeVar("T")

PROMPT, INDENT = "› ", "  "


class Typed(Struct, frozen=True):
    """A typed message and how it is shown: long pastes are replaced by a mark."""

    text: str
    shown: str


class Front(Protocol):
    """Passes typed lines on, and shows the rows of the terminal's screen."""

    redraws: bool
    """Whether shown rows can be redrawn."""

    @property
    def columns(self) -> int:
        """Current width of the terminal."""

    async def listen(self) -> None:
        """Pass typed lines on until `close` or the end of the input."""

    def said(self, shown: str, /) -> None:
        """Show a message or command that starts running now."""

    def refresh(self) -> None:
        """Redraw: the screen has changed."""

    async def show_aside(self) -> None:
        """Return when every finished row is on the terminal, while a person may be typing."""

    async def settle(self) -> None:
        """Return when every finished row is on the terminal."""

    async def lend(self, use: Callable[[], Awaitable[T]]) -> T:
        """Give the terminal to `use` until it is done."""

    async def pick(self, listed: Sequence[Listed]) -> str | None:
        """Let the user pick a session; return its id, or None if they cancel. Raises UsageError if rows cannot be
        redrawn."""

    def offer_draft(self, text: str) -> None:
        """Put a text into the prompt, if that is possible and nothing has been typed yet."""

    def close(self) -> None:
        """Stop listening."""


def missing_session_error() -> UsageError:
    """Return the error for a command that needs a session where no picker can be shown."""
    return UsageError("which session?", hint="`/sessions` lists them")
