"""Results of a request to the model."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hermes.llm.events import ModelFailureKind
from hermes.types import Json, ToolCall

Purpose = Literal["dialectic", "summary", "deduction", "choice", "dream", "self_test"]
AnswerFailureKind = Literal[ModelFailureKind, "cap", "down", "truncated", "invalid", "refusal"]
"""Kinds beyond those of an endpoint: `cap`: the calls or tokens of the day are used up. `down`: the endpoint failed
recently and is not tried yet. `truncated`: the answer ended too early. `invalid`: the answer does not follow the
schema. `refusal`: the endpoint withheld the answer."""
RETRYABLE_KINDS: frozenset[AnswerFailureKind] = frozenset(
    {"cap", "down", "refused", "auth", "rate_limited", "timeout", "server", "interrupted", "bad_reply"}
)
"""Kinds whose cause is not in the request: the same request may succeed later."""


class ModelFailure(Struct, frozen=True):
    """The reason why a request has no answer, in one line for people; it may be retried after `retry_seconds`."""

    kind: AnswerFailureKind
    reason: str
    retry_seconds: float = 0.0

    @property
    def may_pass(self) -> bool:
        """Return True if a job should wait and retry."""
        return self.kind in RETRYABLE_KINDS


class ModelAnswer(Struct, frozen=True):
    """An answer of the model, or the failure. `parsed` follows the schema if the request had one."""

    text: str = ""
    parsed: Json = None
    tool_calls: tuple[ToolCall, ...] = ()
    failure: ModelFailure | None = None


class ModelWaiting(Exception):
    """A job needs a model that is unavailable. The job stays pending, with this reason."""

    def __init__(self, failure: ModelFailure) -> None:
        super().__init__(failure.reason)
        self.retry_seconds = failure.retry_seconds
