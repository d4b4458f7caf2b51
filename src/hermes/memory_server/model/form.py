"""The form of a request, which depends on what the endpoint accepts, and the interpretation of its reply.

Trimming messages to the model's window. Texts lose their middle, since instructions come first and questions
last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import estimate_request, estimate_tokens, keep_ends
from hermes.llm.written_calls import with_written_calls
from hermes.memory_server.model import structured
from hermes.memory_server.model.answer import ModelAnswer, ModelFailure, Purpose
from hermes.memory_server.model.endpoint import ModelEndpoint
from hermes.memory_server.model.structured import without_thoughts
from hermes.types import Json, ToolSpec

WINDOW_SHARE = 0.9
"""Share of the window that is used, because token counts are estimates."""
MAX_ANSWER_SHARE = 0.4
"""Largest share of the window that the answer may use."""
MIN_TEXT_TOKENS = 32
"""A text is not cut below this length while another one is longer."""
CUT_MARK = " […] "

ChatMessages = Sequence[dict[str, Json]]


def room_tokens(messages: ChatMessages, tools: Sequence[ToolSpec], window: int, answer: int) -> int:
    """Return the tokens of the window that remain for more text, besides the answer."""
    return max(0, int(window * WINDOW_SHARE) - answer - estimate_request(messages, tools))


def answer_tokens(window: int, wanted: int) -> int:
    """Return the number of tokens that an answer may have."""
    return max(1, min(wanted, int(window * MAX_ANSWER_SHARE)))


def fit_messages(messages: ChatMessages, tools: Sequence[ToolSpec], window: int, answer: int) -> list[dict[str, Json]]:
    """Return the messages that fit into a window besides the answer. The oldest exchanges are dropped first, then the
    longest texts lose their middles. System messages, the last question and the last exchange stay, shortened."""
    room = room_tokens((), tools, window, answer)
    groups = _groups(messages)
    last_question = max((at for at, group in enumerate(groups) if group[0].get("role") == "user"), default=0)
    kept = {at for at, group in enumerate(groups) if group[0].get("role") == "system"}
    kept |= {last_question, len(groups) - 1}
    sizes = [estimate_request(group) for group in groups]
    gone: set[int] = set()
    for at in range(len(groups)):
        if sum(size for number, size in enumerate(sizes) if number not in gone) <= room:
            break
        if at not in kept:
            gone.add(at)
    left = [message for at, group in enumerate(groups) if at not in gone for message in group]
    return _cut(left, room)


def _groups(messages: ChatMessages) -> list[list[dict[str, Json]]]:
    """Group a tool call with its results: endpoints refuse one without the other."""
    groups: list[list[dict[str, Json]]] = []
    for message in messages:
        if message.get("role") == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _cut(messages: list[dict[str, Json]], room: int) -> list[dict[str, Json]]:
    """Shorten the longest text repeatedly until all fit or none can be shortened."""
    sizes = [estimate_tokens(text) if isinstance(text := one.get("content"), str) else 0 for one in messages]
    texts = {at: messages[at]["content"] for at, size in enumerate(sizes) if size}
    over = estimate_request(messages) - room
    while over > 0 and texts:
        longest = max(texts, key=lambda at: sizes[at])
        second = max((sizes[at] for at in texts if at != longest), default=0)
        target = max(MIN_TEXT_TOKENS, sizes[longest] - over, min(second, sizes[longest] - 1))
        if target >= sizes[longest]:
            break
        cut = keep_ends(texts[longest], target, CUT_MARK)
        messages[longest] = {**messages[longest], "content": cut}
        over -= sizes[longest] - target
        sizes[longest] = target
    return messages


THINKING_TOKENS = 2048
"""Tokens added to an answer for a model that is known to think first."""
REDUCED_WINDOW_SHARE = 0.6
"""Share of the window that is used after an endpoint refused a request as too long."""
CUT, FILTERED = "length", "content_filter"
"""Finish reasons, as endpoints name them."""


class ModelQuestion(Struct, frozen=True):
    """A question, before it is put into the form that an endpoint accepts."""

    purpose: Purpose
    messages: ChatMessages
    tools: tuple[ToolSpec, ...]
    schema: Json
    max_tokens: int


def make_request(
    question: ModelQuestion, endpoint: ModelEndpoint, may_resend: Callable[[], Awaitable[bool]] | None = None
) -> ModelRequest:
    """Put a question into the form that this endpoint accepts, trimmed to its window."""
    messages, tools, form = _adapt(question, endpoint)
    window, answer = _share(question, endpoint)
    fitting = fit_messages(messages, tools, window, answer)
    return ModelRequest(fitting, tools, answer, estimate_request(fitting, tools), form, may_resend)


def find_room(question: ModelQuestion, endpoint: ModelEndpoint) -> int:
    """Return the number of tokens by which a question may still grow."""
    messages, tools, _ = _adapt(question, endpoint)
    return room_tokens(messages, tools, *_share(question, endpoint))


def _share(question: ModelQuestion, endpoint: ModelEndpoint) -> tuple[int, int]:
    """Return the tokens of the window that are used, and how many of them the answer may use."""
    window = int(endpoint.model.context_length * (REDUCED_WINDOW_SHARE if endpoint.is_tight else 1.0))
    return window, answer_tokens(window, question.max_tokens + (THINKING_TOKENS if endpoint.thinks else 0))


def _adapt(question: ModelQuestion, endpoint: ModelEndpoint) -> tuple[ChatMessages, tuple[ToolSpec, ...], Json]:
    """Return messages, tools and answer format as this endpoint accepts them."""
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
    """Append the instructions that the form requires to the first system message."""
    if not orders:
        return messages
    first, rest = (messages[0], messages[1:]) if messages[0].get("role") == "system" else ({"content": ""}, messages)
    return [{"role": "system", "content": "\n\n".join([first["content"], *orders]).strip()}, *rest]


def read_reply(reply: Reply, question: ModelQuestion) -> ModelAnswer:
    """Interpret a complete reply: tool calls, JSON that follows the schema, or text."""
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
