"""What happens in a turn, as one tagged union: terminal, web page, HTTP API and platforms all consume it.

    Waiting? · Accepted
             · (Notice | TextDelta | ReasoningDelta | ToolStarted · ToolProgress* · ToolFinished | MemoryUpdated)*
             · Replied | Stopped | Failed

Exactly one of Replied, Stopped or Failed comes, and it comes last.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct


class Waiting(Struct, frozen=True):
    """Another process speaks in the session, for a while already: the turn begins when it is done."""

    session_id: str


class Accepted(Struct, frozen=True):
    """The person's message is on the disk. The model has not been asked yet."""

    session_id: str
    message_id: int


class TextDelta(Struct, frozen=True):
    """The next piece of the reply."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """The next piece of what the model thinks aloud."""

    text: str


class ToolStarted(Struct, frozen=True):
    """A tool runs now."""

    call_id: str
    name: str
    arguments: str


class ToolProgress(Struct, frozen=True):
    """What a tool that takes a while does now, in one line."""

    call_id: str
    name: str
    text: str


class ToolFinished(Struct, frozen=True):
    """A tool's result is stored."""

    call_id: str
    name: str
    result: str
    ok: bool


class MemoryUpdated(Struct, frozen=True):
    """A built-in note was added, replaced or removed."""

    target: str
    action: str
    text: str

    @property
    def line(self) -> str:
        """How the person is told of it at a terminal."""
        return f"💾 Memory updated: {'removed: ' if self.action == 'remove' else ''}{self.text}"


class Notice(Struct, frozen=True):
    """Something a person should know: a degradation when it starts, its end, a retry."""

    text: str
    is_outage: bool = False
    """It is about what this host stands on, a model or a provider: nobody's business but the owner's."""
    passes: bool = False
    """It is of no interest once something else has happened."""


class Replied(Struct, frozen=True):
    """The turn is over and its reply is stored."""

    session_id: str
    message_id: int
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cut: bool = False
    """It is not whole: it came to a limit."""


class Stopped(Struct, frozen=True):
    """The person stopped the turn; what was said so far is stored."""

    session_id: str
    text: str


GONE = "the session was deleted, and the message with it"

FailureKind = Literal["model", "context_too_long", "busy", "ending", "gone", "store", "host"]
"""`busy`: another process talks in the session. `ending`: we shut down. `gone`: the session was deleted. `store`: it
cannot be written. `host`: the notes or the home."""


class Failed(Struct, frozen=True):
    """There is no reply. `message` is one line for a person; what was said so far is stored."""

    session_id: str
    kind: FailureKind
    message: str
    text: str = ""


TurnEvent: TypeAlias = (
    Waiting
    | Accepted
    | TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | MemoryUpdated
    | Notice
    | Replied
    | Stopped
    | Failed
)
