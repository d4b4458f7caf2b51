"""What a request to the model holds: a pure function of the stored view and what was recalled for this turn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.fence import fence
from hermes.types import Json, LiveView, Message, ToolCall

SPEAKERS = frozenset({"system", "user", "assistant"})
INTERRUPTED = "[No result was recorded: this call was interrupted and has not been run again.]"
SUMMARY = (
    "[Summary of the earlier conversation, made when it grew too long. The messages after it follow as they were.]"
)


def build_context(system_prompt: str, view: LiveView, recalled: str = "") -> list[dict[str, Json]]:
    """The messages of one request, in wire shape.

    Recalled text goes into the last user message and nowhere else. A tool call without a recorded result gets one that
    says so; a result without its call is left out: endpoints refuse both. The same goes for calls that share an id,
    arguments that are no JSON object, and roles that are no part of a conversation.
    """
    messages: list[dict[str, Json]] = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages += _write(view.head)
    if view.summary is not None:
        messages.append({"role": "user", "content": f"{SUMMARY}\n\n{view.summary}"})
    messages += _write(view.tail)
    _put_recalled(messages, recalled)
    return messages


class _Waiting(Struct, frozen=True):
    """A call whose result has not been seen: the id it is sent with and the one it is stored with."""

    id: str
    stored_id: str


def _write(messages: Iterable[Message]) -> Iterator[dict[str, Json]]:
    """Messages in wire shape, with a result for every call."""
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
    """A result for each call that has none: it says so."""
    return [{"role": "tool", "tool_call_id": call.id, "content": INTERRUPTED} for call in waiting]


def _sendable(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls of one message, each with an id of its own and arguments that every endpoint can read."""
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


def _put_recalled(messages: list[dict[str, Json]], recalled: str) -> None:
    """Put recalled text before what the person said: a small model answers what it read last."""
    if not recalled:
        return
    last = next((message for message in reversed(messages) if message["role"] == "user"), None)
    if last is not None and (block := fence(recalled)):
        last["content"] = f"{block}\n\n{last['content']}"
