"""Value types shared by all packages: sessions, messages, tokens, compressions. Their methods use only their fields."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import Struct

Json: TypeAlias = Any
"""A result of `json.loads`, whose shape is unknown."""

OWN_MARK = "hermes_own"
"""Metadata key of a delivered message: it belongs to a conversation of the owner alone."""
ECHO = "echo"
"""Finish reason of a reply that only quotes earlier messages; search leaves it out."""


class ToolCall(Struct, frozen=True):
    """One call that the model asked for. `arguments` is the text the model wrote, which may not be valid JSON."""

    id: str
    name: str
    arguments: str

    def to_wire(self) -> dict[str, Json]:
        """The shape that OpenAI-compatible endpoints and existing stores use."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }

    @classmethod
    def from_wire(cls, value: Json) -> ToolCall:
        """Read the wire shape; missing parts become empty strings, so that old rows never fail to open."""
        function = value.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments") or ""
        return cls(
            id=str(value.get("id") or value.get("call_id") or ""),
            name=str(function.get("name") or value.get("name") or ""),
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
        )


class ToolSpec(Struct, frozen=True):
    """A tool the model may call. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Json


UNANSWERED_SCORE = 0.0
"""Certainty of a line from a memory that probably lacks the answer."""


class RecalledLine(Struct, frozen=True):
    """A remembered line, word for word."""

    text: str
    speaker: str = ""
    """The speaker; "" for the user of the session and for notes about them."""
    at: float | None = None
    """Unix time of the message."""
    certainty: float | None = None
    """Estimated probability that it fits the question, from 0 to 1; None without an estimate."""


def is_told(lines: Iterable[RecalledLine]) -> bool:
    """Return False for the lines of a memory that probably lacks the answer to the question."""
    return all(line.certainty != UNANSWERED_SCORE for line in lines)


class Draft(Struct, frozen=True):
    """A message that is not stored yet."""

    role: str
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    author_id: str | None = None
    author_name: str | None = None
    author_alt: str | None = None
    author_is_owner: bool | None = None
    author_is_agent: bool | None = None


class Message(Struct, frozen=True):
    """A stored message. Ids grow in the order of commit, over all sessions of a store."""

    id: int
    session_id: str
    role: str
    content: str | None
    timestamp: float
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    author_id: str | None = None
    author_name: str | None = None
    author_alt: str | None = None
    author_is_owner: bool | None = None
    author_is_agent: bool | None = None


class Session(Struct, frozen=True):
    """One conversation. Its id never changes."""

    id: str
    source: str
    started_at: float
    user_id: str | None = None
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None
    thread_id: str | None = None
    title: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    parent_session_id: str | None = None
    ended_at: float | None = None
    end_reason: str | None = None
    message_count: int = 0


class Spent(Struct, frozen=True):
    """Token usage of some requests to one model. `estimated` counts the requests without a token count."""

    requests: int = 0
    estimated: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the endpoint read from its cache."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Compression(Struct, frozen=True):
    """A row beside the log: messages up to `horizon_message_id`, except `kept_ids`, are replaced by `summary`.

    `upto_message_id` is the newest message that the compressor saw; the snapshot is the view up to there, before the
    compression.
    """

    session_id: str
    epoch: int
    horizon_message_id: int
    upto_message_id: int
    kept_ids: tuple[int, ...]
    summary: str
    snapshot_id: str
    created_at: float


class LiveView(Struct, frozen=True):
    """The view that the model has of a session: kept head, summary, and every message after the horizon, in order."""

    session_id: str
    epoch: int
    head: tuple[Message, ...]
    summary: str | None
    tail: tuple[Message, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The stored messages of the view, without the summary."""
        return self.head + self.tail
