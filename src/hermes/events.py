"""What happens in a turn, as one tagged union: terminal, web page, HTTP API and platforms all consume it.

    Waiting? · Accepted
             · (Notice | TextDelta | ReasoningDelta | ToolStarted · ToolProgress* · ToolFinished | MemoryUpdated)*
             · Replied | Stopped | Failed

Exactly one of Replied, Stopped or Failed comes, and it comes last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another process speaks in the session, for a while already: the turn begins when it is done."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The person's message is on the disk. The model has not been asked yet."""

    session_id: str
    message_id: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of what the model thinks aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool runs now."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolProgress:
    """What a tool that takes a while does now, in one line."""

    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool's result is stored."""

    call_id: str
    name: str
    result: str
    ok: bool


@dataclass(frozen=True, slots=True)
class MemoryUpdated:
    """A built-in note was added, replaced or removed."""

    target: str
    action: str
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know: a degradation when it starts, its end, a retry."""

    text: str
    is_outage: bool = False
    """It is about what this host stands on, a model or a provider: nobody's business but the owner's."""


@dataclass(frozen=True, slots=True)
class Replied:
    """The turn is over and its reply is stored."""

    session_id: str
    message_id: int
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cut: bool = False
    """It is not whole: it came to a limit."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The person stopped the turn; what was said so far is stored."""

    session_id: str
    text: str


GONE = "the session was deleted, and the message with it"

FailureKind = Literal["model", "context_too_long", "busy", "ending", "gone", "store", "host"]
"""`busy`: another process talks in the session. `ending`: we shut down. `gone`: the session was deleted. `store`: it
cannot be written. `host`: the notes or the home."""


@dataclass(frozen=True, slots=True)
class Failed:
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
