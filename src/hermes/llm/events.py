"""What a call to a model gives, as one tagged union. Exactly one Completed or ModelFailed comes, and it comes last."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.types import ToolCall

ModelFailureKind = Literal[
    "refused",
    "auth",
    "rate_limited",
    "context_too_long",
    "timeout",
    "server",
    "bad_request",
    "bad_reply",
    "interrupted",
]
"""`refused`: no connection was made. `interrupted`: it was lost before the reply ended."""


class Usage(Struct, frozen=True):
    """Tokens as the endpoint counted them. `cached_tokens` is the part of the prompt that it had in its cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Reply(Struct, frozen=True):
    """What the model said. `finish_reason` and `model` are the endpoint's own words, None where it gave none."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    cut_at: int | None = None
    """Characters after which we ended it ourselves, since it had more than a reply may have; None when we did not."""


class TextPiece(Struct, frozen=True):
    """The next piece of the reply's text."""

    text: str


class ReasoningPiece(Struct, frozen=True):
    """The next piece of what the model thought aloud."""

    text: str


class Retrying(Struct, frozen=True):
    """Attempt number `attempt` failed before any output; the next one starts after `wait` seconds."""

    attempt: int
    wait: float
    reason: str


class Completed(Struct, frozen=True):
    """The reply is whole. The deltas, joined, are its text and reasoning."""

    reply: Reply


class ModelFailed(Struct, frozen=True):
    """There is no whole reply. `message` is one line for a person; `partial` is what had been streamed by then.

    `retryable` means that the same request may succeed later, after `retry_after` seconds where the endpoint said so.
    """

    kind: ModelFailureKind
    message: str
    retryable: bool
    partial: Reply = Reply()
    retry_after: float | None = None


Delta: TypeAlias = TextPiece | ReasoningPiece
ModelEvent: TypeAlias = TextPiece | ReasoningPiece | Retrying | Completed | ModelFailed
