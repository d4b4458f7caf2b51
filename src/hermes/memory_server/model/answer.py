"""Values that asking a model gives."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hermes.llm.events import ModelFailureKind
from hermes.types import Json, ToolCall

Purpose = Literal["dialectic", "summary", "deduction", "choice", "dream", "self_test"]
AnswerFailureKind = Literal[ModelFailureKind, "cap", "down", "truncated", "invalid", "refusal"]
"""Beside those of an endpoint: `cap`: the day's calls or tokens are used up. `down`: it failed lately and is not asked
yet. `truncated`: the answer ended too early. `invalid`: it does not follow the schema. `refusal`: it was held back."""
LATER: frozenset[AnswerFailureKind] = frozenset(
    {"cap", "down", "refused", "auth", "rate_limited", "timeout", "server", "interrupted", "bad_reply"}
)
"""The same request may succeed later, for reasons that are not in the request."""


class ModelFailure(Struct, frozen=True):
    """Why there is no answer. `reason` is one line for a person; `retry_seconds` says when to ask again."""

    kind: AnswerFailureKind
    reason: str
    retry_seconds: float = 0.0

    @property
    def may_pass(self) -> bool:
        """Whether a job should wait and ask again."""
        return self.kind in LATER


class ModelAnswer(Struct, frozen=True):
    """What a model answered, or why it did not. `parsed` follows the schema where one was asked for."""

    text: str = ""
    parsed: Json = None
    tool_calls: tuple[ToolCall, ...] = ()
    failure: ModelFailure | None = None


class ModelWaiting(Exception):
    """A job cannot be done before a model can be asked again. The job stays pending, with this reason."""

    def __init__(self, failure: ModelFailure) -> None:
        super().__init__(failure.reason)
        self.retry_seconds = failure.retry_seconds
