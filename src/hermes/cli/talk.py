"""What a front and the conversation behind it know of each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from hermes.errors import UsageError

if TYPE_CHECKING:
    from hermes.cli.screen import Screen
    from hermes.cli.status import ChatStatus
    from hermes.store.sessions import Listed

T = TypeVar("T")

PROMPT, INDENT = "› ", "  "


class Typed(Struct, frozen=True):
    """What a person said, and how it is shown: a long text that was pasted has a mark in its place."""

    text: str
    shown: str


class Talk(Protocol):
    """What a front speaks to."""

    @property
    def screen(self) -> Screen:
        """The rows to show."""

    @property
    def status(self) -> ChatStatus:
        """What the status line says."""

    @property
    def waiting(self) -> tuple[Typed, ...]:
        """What was typed while a reply came, and is said next."""

    @property
    def doing(self) -> str:
        """What is under way, in a word or two; "" when nothing is."""

    def hear(self, typed: Typed) -> None:
        """The person typed this and pressed Enter."""

    def interrupt(self) -> bool:
        """End what is under way; False when nothing is, or it was told already."""

    def take_back(self) -> tuple[Typed, ...]:
        """What was typed ahead, which is not said now."""

    def leave(self, code: int = 0) -> None:
        """End the conversation."""


class Front(Protocol):
    """A way to use a terminal."""

    redraws: bool
    """Whether what was shown can be drawn over."""

    @property
    def columns(self) -> int:
        """How wide it is now."""

    async def listen(self, talk: Talk) -> None:
        """Pass on what is typed, until `close` or the end of the input."""

    def said(self, talk: Talk, shown: str, /) -> None:
        """A message or command is taken up now."""

    def refresh(self, talk: Talk) -> None:
        """The screen has changed."""

    async def show_aside(self, talk: Talk) -> None:
        """Return when every finished row is on the terminal, while a person may be typing."""

    async def settle(self, talk: Talk) -> None:
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
