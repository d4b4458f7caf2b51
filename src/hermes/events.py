"""The events of a turn, as one tagged union: terminal, web page, HTTP API and platforms all consume it.

    Waiting? · Accepted
      · (Notice | TextDelta | ReasoningDelta | ToolStarted · ToolProgress* · ToolFinished | MemoryUpdated)*
      · Replied | Stopped | Failed

Exactly one of Replied, Stopped or Failed is sent, as the last event.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct


class Waiting(Struct, frozen=True):
    """Another process has used the session for a while; this turn begins when that one ends."""

    session_id: str


class Accepted(Struct, frozen=True):
    """The person's message is on disk. The model has not been asked yet."""

    session_id: str
    message_id: int


class TextDelta(Struct, frozen=True):
    """The next piece of the reply."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """The next piece of the model's reasoning."""

    text: str


class ToolStarted(Struct, frozen=True):
    """A tool starts."""

    call_id: str
    name: str
    arguments: str


class ToolProgress(Struct, frozen=True):
    """Progress of a slow tool, in one line."""

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
        """Return the line that a terminal shows."""
        return f"💾 Memory updated: {'removed: ' if self.action == 'remove' else ''}{self.text}"


class Notice(Struct, frozen=True):
    """A message for the person: the start of a degradation, its end, or a retry."""

    text: str
    is_outage: bool = False
    """True if it concerns the host's model or provider, and so only the owner."""
    passes: bool = False
    """True if it is obsolete once another event has happened."""


class Replied(Struct, frozen=True):
    """The turn is over and its reply is stored."""

    session_id: str
    message_id: int
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cut: bool = False
    """True if the reply is incomplete because it reached a limit."""


class Stopped(Struct, frozen=True):
    """The person stopped the turn; its text so far is stored."""

    session_id: str
    text: str


GONE = "the session was deleted, and the message with it"

FailureKind = Literal["model", "context_too_long", "busy", "ending", "gone", "store", "host"]
"""`busy`: another process uses the session. `ending`: this process shuts down. `gone`: the session was deleted.
`store`: the store cannot be written. `host`: a problem of the notes or the home."""


class Failed(Struct, frozen=True):
    """The turn ended without a reply. `message` is one line for the person; the text so far is stored."""

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
