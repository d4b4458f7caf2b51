"""Builds the messages of a model request: a pure function of the stored view and the recalled text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.fence import fence
from hermes.types import Json, LiveView, Message, ToolCall

SPEAKERS = frozenset({"system", "user", "assistant"})
INTERRUPTED_RESULT = "[No result was recorded: this call was interrupted and has not been run again.]"
SUMMARY_HEADING = (
    "[Summary of the earlier conversation, made when it grew too long. The messages after it follow as they were.]"
)


NOT_TOLD = (
    "(You were probably never told the answer to this question. If the lines above do not contain it, reply: You have "
    "not told me that.)"
)
"""Placed before a question whose answer memory probably lacks, for a model without tools. A model of 1.5 billion
parameters follows these words and ignores milder ones; it still answers what everybody knows."""


def build_context(
    system_prompt: str, view: LiveView, recalled: str = "", *, is_told: bool = True
) -> list[dict[str, Json]]:
    """Return the messages of one request in wire format.

    Recalled text goes only into the last user message, followed by NOT_TOLD unless `is_told`. Endpoints reject
    incomplete histories, so a tool call without a recorded result gets one that says so, and a result without its call
    is dropped. Duplicate call ids, arguments that are not JSON objects and unknown roles are repaired or dropped too.
    """
    messages: list[dict[str, Json]] = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages += _write(view.head)
    if view.summary is not None:
        messages.append({"role": "user", "content": f"{SUMMARY_HEADING}\n\n{view.summary}"})
    messages += _write(view.tail)
    _put_recalled(messages, recalled, "" if is_told else f"{NOT_TOLD}\n\n")
    return messages


class _Waiting(Struct, frozen=True):
    """A call without a result so far: the id in the request, and the id in the store."""

    id: str
    stored_id: str


def _write(messages: Iterable[Message]) -> Iterator[dict[str, Json]]:
    """Yield messages in wire format, with a result for every call."""
    waiting: list[_Waiting] = []
    for message in messages:
        role, content = message.role, message.content
        if role == "tool":
            if answered := next((call for call in waiting if call.stored_id == message.tool_call_id), None):
                waiting.remove(answered)
                yield {"role": "tool", "tool_call_id": answered.id, "content": content or ""}
        elif role in SPEAKERS:
            yield from _write_interrupted(waiting)
            waiting.clear()
            if message.tool_calls and role == "assistant":
                calls = _sendable(message.tool_calls)
                waiting += [_Waiting(call.id, was.id) for call, was in zip(calls, message.tool_calls, strict=True)]
                yield {"role": role, "content": content or "", "tool_calls": [call.to_wire() for call in calls]}
            elif content:
                author = message.author_name
                yield {"role": role, "content": f"[{author}] {content}" if author else content}
    yield from _write_interrupted(waiting)


def _write_interrupted(waiting: Iterable[_Waiting]) -> list[dict[str, Json]]:
    """Return a result for each unanswered call, saying that it was interrupted."""
    return [{"role": "tool", "tool_call_id": call.id, "content": INTERRUPTED_RESULT} for call in waiting]


def _sendable(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return the calls of one message with unique ids and with arguments that every endpoint accepts."""
    sent: dict[str, ToolCall] = {}
    for number, call in enumerate(calls):
        own = call.id
        while not own or own in sent:
            own = f"{own or 'call'}_{number}"
        sent[own] = replace(call, id=own, arguments=_readable(call.arguments))
    return list(sent.values())


def _readable(arguments: str) -> str:
    try:
        whole = isinstance(json.loads(arguments or "{}"), dict)
    except (ValueError, RecursionError):
        whole = False
    return (arguments or "{}") if whole else json.dumps({"malformed": arguments}, ensure_ascii=False)


def _put_recalled(messages: list[dict[str, Json]], recalled: str, hint: str) -> None:
    """Insert recalled text, then the hint, before the person's words: small models answer what they read last."""
    if not recalled:
        return
    last = next((message for message in reversed(messages) if message["role"] == "user"), None)
    if last is not None and (block := fence(recalled)):
        last["content"] = f"{block}\n\n{hint}{last['content']}"
