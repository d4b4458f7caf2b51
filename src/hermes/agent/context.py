"""What a request to the model holds: a pure function of the stored view and what was recalled for this turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hermes.memory.fence import fence
from hermes.types import Json, LiveView, Message

INTERRUPTED = "[No result was recorded: this call was interrupted and has not been run again.]"
SUMMARY = (
    "[Summary of the earlier conversation, made when it grew too long. The messages after it follow as they were.]"
)


def build_context(system_prompt: str, view: LiveView, recalled: str = "") -> list[dict[str, Json]]:
    """The messages of one request, in wire shape.

    Recalled text goes into the last user message and nowhere else. A tool call without a recorded result gets one that
    says so; a result without its call is left out: endpoints refuse both.
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
    waiting: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id is not None and waiting.pop(message.tool_call_id, None) is not None:
                yield {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content or ""}
            continue
        yield from _interrupted(waiting)
        if wire := _spoken(message):
            yield wire
            waiting = {call.id: call.name for call in message.tool_calls}
    yield from _interrupted(waiting)


def _interrupted(waiting: dict[str, str]) -> Iterator[dict[str, Json]]:
    for call_id in list(waiting):
        del waiting[call_id]
        yield {"role": "tool", "tool_call_id": call_id, "content": INTERRUPTED}


def _spoken(message: Message) -> dict[str, Json] | None:
    if message.tool_calls:
        calls = [call.to_wire() for call in message.tool_calls]
        return {"role": message.role, "content": message.content or "", "tool_calls": calls}
    return {"role": message.role, "content": message.content} if message.content else None


def _put_into_last_user_message(messages: list[dict[str, Json]], block: str) -> None:
    for message in reversed(messages):
        if message["role"] == "user":
            message["content"] = f"{message['content']}\n\n{block}"
            return
