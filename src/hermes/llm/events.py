"""The events of a call to a model, as one tagged union. The last event is the only Completed or ModelFailed."""

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
"""`refused`: no connection was made. `interrupted`: the connection was lost before the reply ended."""


class Usage(Struct, frozen=True):
    """Token counts from the endpoint. `cached_tokens` is the part of the prompt that was in its cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Reply(Struct, frozen=True):
    """A model's reply. `finish_reason` and `model` are the endpoint's own words, None if it sent none."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    cut_at: int | None = None
    """The character limit at which we cut the reply; None if it was not cut."""


class TextPiece(Struct, frozen=True):
    """The next piece of the reply's text."""

    text: str


class ReasoningPiece(Struct, frozen=True):
    """The next piece of the model's reasoning."""

    text: str


class Retrying(Struct, frozen=True):
    """Attempt number `attempt` failed before any output; the next one starts after `wait` seconds."""

    attempt: int
    wait: float
    reason: str


class Completed(Struct, frozen=True):
    """The end of a complete reply. The joined deltas equal its text and reasoning."""

    reply: Reply


class ModelFailed(Struct, frozen=True):
    """The end of a call without a complete reply. `message` is one line for a person; `partial` is what arrived.

    `retryable` means that the same request may succeed later; `retry_after` is in seconds, if the endpoint sent it.
    """

    kind: ModelFailureKind
    message: str
    retryable: bool
    partial: Reply = Reply()
    retry_after: float | None = None


Delta: TypeAlias = TextPiece | ReasoningPiece
ModelEvent: TypeAlias = TextPiece | ReasoningPiece | Retrying | Completed | ModelFailed
