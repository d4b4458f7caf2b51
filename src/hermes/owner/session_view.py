"""A session as the model sees it: the parts of a request now, and before and after each compression."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import NotFoundError
from hermes.llm.tokens import estimate_tokens, message_tokens, view_tokens
from hermes.store.injections import find_injection
from hermes.store.store import Store
from hermes.types import Compression, LiveView, Message, Session

PartName: TypeAlias = Literal["system", "memory", "kept", "summary", "said", "replies", "tools"]


class Snapshot(Struct, frozen=True):
    """One compression: the messages and tokens that the model saw before and after it."""

    id: str
    session_id: str
    created_at: float
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int


class ViewPart(Struct, frozen=True):
    """A part of a request, with its estimated tokens and the number of its stored messages."""

    name: PartName
    tokens: int
    messages: int = 0


def read_snapshot(store: Store, tx: Tx, row: Compression) -> Snapshot:
    before, after = store.compressions.snapshot(tx, row.snapshot_id), store.compressions.swapped(tx, row)
    messages, tokens = (len(before.messages), len(after.messages)), (view_tokens(before), view_tokens(after))
    return Snapshot(row.snapshot_id, row.session_id, row.created_at, *messages, *tokens)


def read_parts(store: Store, tx: Tx, session: Session) -> list[ViewPart]:
    """Return the parts of a session's next request, in order. Tool descriptions are not stored, and so not counted."""
    view = store.compressions.view(tx, session.id)
    found = [
        ViewPart("system", estimate_tokens(session.system_prompt or "")),
        ViewPart("memory", _memory_tokens(store, tx, session.id)),
        ViewPart("kept", sum(map(message_tokens, view.head)), len(view.head)),
        ViewPart("summary", estimate_tokens(view.summary or "")),
        *(_tail_part(view, name) for name in ("said", "replies", "tools")),
    ]
    return [one for one in found if one.tokens]


def _tail_part(view: LiveView, name: PartName) -> ViewPart:
    chosen = [one for one in view.tail if _kind(one) == name]
    return ViewPart(name, sum(map(message_tokens, chosen)), len(chosen))


def _kind(message: Message) -> PartName:
    if message.role == "tool" or message.tool_calls:
        return "tools"
    return "replies" if message.role == "assistant" else "said"


def _memory_tokens(store: Store, tx: Tx, session_id: str) -> int:
    """Return the tokens that memory added to the newest turn; 0 without a record of that turn."""
    try:
        newest = find_injection(tx, session_id)
    except NotFoundError:
        return 0
    is_current = newest.message_id >= store.messages.last_said(tx, session_id)
    return sum(part.tokens for part in newest.parts) if is_current else 0
