"""The form of a request, which depends on what an endpoint takes, and what a reply means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import estimate_request
from hermes.llm.written_calls import with_written_calls
from hermes.memory_server.model import structured
from hermes.memory_server.model.answer import ModelAnswer, ModelFailure, Purpose
from hermes.memory_server.model.endpoint import ModelEndpoint
from hermes.memory_server.model.fitting import ChatMessages, answer_tokens, fit_messages, room_tokens
from hermes.memory_server.model.thoughts import without_thoughts
from hermes.types import Json, ToolSpec

THINKING_TOKENS = 2048
"""What an answer may have beyond the tokens that were asked for, once a model was seen to think first."""
SHRUNK = 0.6
"""The share of its window that is used once an endpoint said that a request is too long."""
CUT, FILTERED = "length", "content_filter"
"""Reasons of an end, in the endpoints' words."""


class ModelQuestion(Struct, frozen=True):
    """What is asked, before it is put into the form that an endpoint takes."""

    purpose: Purpose
    messages: ChatMessages
    tools: tuple[ToolSpec, ...]
    schema: Json
    max_tokens: int


def make_request(
    question: ModelQuestion, endpoint: ModelEndpoint, may_resend: Callable[[], Awaitable[bool]] | None = None
) -> ModelRequest:
    """Put a question into the form that this endpoint takes, cut to its window."""
    messages, tools, form = _adapt(question, endpoint)
    window, answer = _share(question, endpoint)
    fitting = fit_messages(messages, tools, window, answer)
    return ModelRequest(fitting, tools, answer, estimate_request(fitting, tools), form, may_resend)


def find_room(question: ModelQuestion, endpoint: ModelEndpoint) -> int:
    """Return the tokens by which a question may still grow."""
    messages, tools, _ = _adapt(question, endpoint)
    return room_tokens(messages, tools, *_share(question, endpoint))


def _share(question: ModelQuestion, endpoint: ModelEndpoint) -> tuple[int, int]:
    """Return the tokens that are used of the window, and those of them that the answer may have."""
    window = int(endpoint.model.context_length * (SHRUNK if endpoint.is_tight else 1.0))
    return window, answer_tokens(window, question.max_tokens + (THINKING_TOKENS if endpoint.thinks else 0))


def _adapt(question: ModelQuestion, endpoint: ModelEndpoint) -> tuple[ChatMessages, tuple[ToolSpec, ...], Json]:
    """Return messages, tools and the form of the answer as this endpoint takes them."""
    messages, tools, orders = question.messages, question.tools, []
    if tools and not endpoint.takes_tools:
        messages, orders, tools = structured.to_text_protocol(messages), [structured.describe_tools(tools)], ()
    form: Json = None
    if question.schema is not None:
        orders.append(structured.describe_schema(question.schema))
        if endpoint.takes_schema and not question.tools:
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": question.schema}}
    return _with_orders(messages, orders), tools, form


def _with_orders(messages: ChatMessages, orders: Sequence[str]) -> ChatMessages:
    """Add what the form demands to the first system message."""
    if not orders:
        return messages
    first, rest = (messages[0], messages[1:]) if messages[0].get("role") == "system" else ({"content": ""}, messages)
    return [{"role": "system", "content": "\n\n".join([first["content"], *orders]).strip()}, *rest]


def read_reply(reply: Reply, question: ModelQuestion) -> ModelAnswer:
    """Read a whole reply: tool calls, JSON of the schema, or text."""
    reply = replace(reply, text=without_thoughts(reply.text))
    reply = with_written_calls(reply, frozenset(tool.name for tool in question.tools))
    text = reply.text
    if reply.tool_calls:
        return ModelAnswer(text, tool_calls=reply.tool_calls)
    is_cut = reply.finish_reason == CUT
    if reply.finish_reason == FILTERED:
        return ModelAnswer(text, failure=ModelFailure("refusal", "the endpoint held the answer back"))
    if question.schema is not None and text:
        parsed, problem = structured.read_json(text, question.schema)
        return ModelAnswer(text, parsed, failure=ModelFailure("invalid", problem) if problem else None)
    if not text:
        return ModelAnswer(failure=ModelFailure("truncated" if is_cut else "bad_reply", "the answer has no text"))
    return ModelAnswer(text, failure=ModelFailure("truncated", "the answer was cut off") if is_cut else None)
