"""A session as text: JSON lines for programs, Markdown for people."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import to_builtins

from hermes.store.hidden import TAKEN_BACK
from hermes.types import Compression, Json, Message, Session


def to_jsonl(
    session: Session,
    messages: Iterable[Message],
    compressions: Sequence[Compression],
    undone: Collection[int] = (),
) -> Iterator[str]:
    """Yield one line for the session, one for each message in order, one for each compression. Messages whose ids are
    in `undone` are marked."""
    yield _line("session", to_builtins(session))
    for message in messages:
        yield _line("message", message_to_json(message, undone))
    for compression in compressions:
        yield _line("compression", to_builtins(compression))


def to_json(
    session: Session,
    messages: Iterable[Message],
    compressions: Sequence[Compression],
    undone: Collection[int] = (),
) -> dict[str, Json]:
    """Return the session, its messages in order, and its compressions as one JSON value."""
    return {
        "session": to_builtins(session),
        "messages": [message_to_json(message, undone) for message in messages],
        "compressions": [to_builtins(compression) for compression in compressions],
    }


def to_markdown(
    session: Session,
    messages: Iterable[Message],
    compressions: Sequence[Compression],
    undone: Collection[int] = (),
) -> Iterator[str]:
    """Yield a readable transcript. It marks compressions at their horizon, and messages that were retracted."""
    yield f"# {session.title or session.id}"
    yield f"\n`{session.id}` · {session.source} · started {_time(session.started_at)}"
    for message in with_compressions(messages, compressions):
        if isinstance(message, Compression):
            yield f"\n---\n\n*Compressed up to here ({message.snapshot_id}):*\n\n{message.summary}\n\n---"
            continue
        taken_back = f" · {TAKEN_BACK}" if message.id in undone else ""
        yield f"\n## {_speaker(message)} · {_time(message.timestamp)}{taken_back}\n"
        if message.content:
            yield message.content
        for call in message.tool_calls:
            yield f"\n- calls `{call.name}` with `{call.arguments}`"


def with_compressions(
    messages: Iterable[Message], compressions: Sequence[Compression]
) -> Iterator[Message | Compression]:
    """Yield messages and compressions in order, each compression at its horizon. Several compressions may share a
    horizon, which need not be a message of the session."""
    waiting = deque(compressions)
    for message in messages:
        while waiting and waiting[0].horizon_message_id < message.id:
            yield waiting.popleft()
        yield message
    yield from waiting


def message_to_json(message: Message, undone: Collection[int] = ()) -> dict[str, Json]:
    """Return a message as JSON values, without empty fields; messages in `undone` are marked."""
    values = {name: value for name, value in to_builtins(message).items() if value not in (None, ())}
    if message.id in undone:
        values["undone"] = True
    if message.tool_calls:
        values["tool_calls"] = [call.to_wire() for call in message.tool_calls]
    return values


def _line(kind: str, values: dict[str, Json]) -> str:
    return json.dumps({"type": kind, **values}, ensure_ascii=False, default=repr)


def _speaker(message: Message) -> str:
    return f"tool {message.tool_name}" if message.role == "tool" and message.tool_name else message.role


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
