"""`/unfold`: show tool calls in full, which a terminal shows as a single row."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct

from hermes.errors import UsageError
from hermes.slash.here import Beginning, Here, read_number
from hermes.types import Message, ToolCall

MAX_SHOWN_CHARS = 20_000
"""How much of the arguments or of a result is shown."""
MAX_SHOWN_CALLS = 20
"""Calls shown at once."""


class _Made(Struct, frozen=True):
    """A call and its result, None while it runs. `asked` is the id of the message that caused it."""

    call: ToolCall
    result: str | None
    asked: int


async def unfold(here: Here, text: str) -> str:
    place = await here.place()
    view = None if isinstance(place, Beginning) else await place.store.view(place.session_id)
    made = _calls(view.messages) if view is not None else []
    if not made:
        raise UsageError("no tool was called here yet, or not since the last compression")
    number = read_number(text)
    if text and not 1 <= number <= len(made):
        raise UsageError(f"/unfold takes a number from 1, the last call, to {len(made)}")
    chosen = [made[-number]] if text else [one for one in made if one.asked == made[-1].asked][-MAX_SHOWN_CALLS:]
    return "\n\n".join(_describe(one) for one in chosen)


def _calls(messages: Sequence[Message]) -> list[_Made]:
    """Return every call of a conversation, the oldest first."""
    results = {message.tool_call_id: message.content or "" for message in messages if message.role == "tool"}
    made: list[_Made] = []
    asked = 0
    for message in messages:
        asked = message.id if message.role == "user" else asked
        made += [_Made(call, results.get(call.id), asked) for call in message.tool_calls]
    return made


def _describe(made: _Made) -> str:
    result = "(no result)" if made.result is None else _bounded(made.result)
    return f"· {made.call.name}\n{_bounded(_pretty(made.call.arguments))}\n→ {result}"


def _pretty(arguments: str) -> str:
    """Return JSON arguments indented; others unchanged."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return arguments


def _bounded(text: str) -> str:
    left = len(text) - MAX_SHOWN_CHARS
    return text if left <= 0 else f"{text[:MAX_SHOWN_CHARS]}\n… and {left:,} characters more"
