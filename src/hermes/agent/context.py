"""What a request to the model holds: a pure function of the stored view and what was recalled for this turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hermes.memory.fence import fence
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
    messages += _wire(view.head)
    if view.summary is not None:
        messages.append({"role": "user", "content": f"{SUMMARY}\n\n{view.summary}"})
    messages += _wire(view.tail)
    if block := fence(recalled):
        _put_into_last_user_message(messages, block)
    return messages


def _wire(messages: Sequence[Message]) -> Iterator[dict[str, Json]]:
    waiting: list[_Waiting] = []
    for message in messages:
        if message.role == "tool":
            if answered := next((call for call in waiting if call.stored_id == message.tool_call_id), None):
                waiting.remove(answered)
                yield {"role": "tool", "tool_call_id": answered.id, "content": message.content or ""}
        elif message.role in SPEAKERS:
            yield from _interrupted(waiting)
            calls = _sendable(message.tool_calls) if message.role == "assistant" else []
            if calls:
                wire = [call.to_wire() for call in calls]
                yield {"role": message.role, "content": message.content or "", "tool_calls": wire}
            elif message.content:
                yield {"role": message.role, "content": _attributed(message)}
            waiting = [_Waiting(call.id, was.id) for call, was in zip(calls, message.tool_calls, strict=False)]
    yield from _interrupted(waiting)


def _attributed(message: Message) -> str | None:
    """What was said; where several people speak, with who said it."""
    return f"[{message.author_name}] {message.content}" if message.author_name else message.content


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call whose result has not been seen: the id it is sent with and the one it is stored with."""

    id: str
    stored_id: str


def _interrupted(waiting: Sequence[_Waiting]) -> Iterator[dict[str, Json]]:
    for call in waiting:
        yield {"role": "tool", "tool_call_id": call.id, "content": INTERRUPTED}


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


def _put_into_last_user_message(messages: list[dict[str, Json]], block: str) -> None:
    for message in reversed(messages):
        if message["role"] == "user":
            message["content"] = f"{message['content']}\n\n{block}"
            return
