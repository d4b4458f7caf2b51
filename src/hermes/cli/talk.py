"""What a front and the conversation behind it know of each other."""

from __future__ import annotations

from typing import Protocol

from hermes.cli.screen import Screen

PROMPT, INDENT = "› ", "  "


class Talk(Protocol):
    """What a front speaks to."""

    @property
    def screen(self) -> Screen:
        """The rows to show."""
        ...

    @property
    def waiting(self) -> tuple[str, ...]:
        """What was typed while a reply came, and is said next."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a turn or a command runs."""
        ...

    def hear(self, text: str) -> None:
        """The person typed this and pressed Enter."""
        ...

    def interrupt(self) -> bool:
        """End what is under way; False when nothing is, or it was told already."""
        ...

    def leave(self, code: int = 0) -> None:
        """End the conversation."""
        ...


class Front(Protocol):
    """A way to use a terminal."""

    @property
    def columns(self) -> int:
        """How wide it is now."""
        ...

    async def listen(self, talk: Talk) -> None:
        """Pass on what is typed, until `close` or the end of the input."""
        ...

    def said(self, talk: Talk, text: str) -> None:
        """A message or command is taken up now."""
        ...

    def refresh(self, talk: Talk) -> None:
        """The screen has changed."""
        ...

    async def settle(self, talk: Talk) -> None:
        """Return when every finished row is on the terminal."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...
