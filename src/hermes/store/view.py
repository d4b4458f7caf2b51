"""The live view, which the model sees of a session: a pure function of the latest compression and the messages."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from hermes.types import Compression, LiveView, Message


def live_view(session_id: str, compression: Compression | None, messages: Iterable[Message]) -> LiveView:
    """Return the view of `session_id` after `compression`.

    `messages` may hold more than is needed (the whole history, other sessions); only the session's own count. A message
    after the horizon is always in the view, once, in order, whoever wrote it and however late.
    """
    own = sorted({message.id: message for message in messages if message.session_id == session_id}.items())
    if compression is None:
        return LiveView(session_id, 0, (), None, tuple(message for _, message in own))
    kept = set(compression.kept_ids)
    return LiveView(
        session_id=session_id,
        epoch=compression.epoch,
        head=tuple(m for key, m in own if key in kept and key <= compression.horizon_message_id),
        summary=compression.summary,
        tail=tuple(m for key, m in own if key > compression.horizon_message_id),
    )


def grow(view: LiveView, later: Iterable[Message]) -> LiveView:
    """Return the view with later messages appended in order, under the same compression."""
    return replace(view, tail=(*view.tail, *later))
