"""Messages: appended in order, searchable and queued for reasoning in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, Select, bindparam, insert, select, text, update

from hermes.memory_server.db.engine import Tx
from hermes.memory_server.db.tables import message_vectors, messages, peers, sessions, workspaces
from hermes.memory_server.engine.embed import embed_pieces
from hermes.memory_server.engine.filters import Field, build_filter
from hermes.memory_server.engine.ingest import queue_reasoning
from hermes.memory_server.engine.members import add_authors
from hermes.memory_server.engine.paging import Page, Paged, fetch_page
from hermes.memory_server.engine.peers import ensure_peer_ids
from hermes.memory_server.engine.sessions import ensure_session, find_live_session, get_session
from hermes.memory_server.faults import Missing
from hermes.memory_server.ids import new_id
from hermes.memory_server.tokens import count_tokens

COLUMNS = (
    *messages.c,
    workspaces.c.name.label("workspace"),
    sessions.c.name.label("session"),
    peers.c.name.label("peer"),
)
MESSAGES = (
    messages.join(sessions, sessions.c.id == messages.c.session_id)
    .join(peers, peers.c.id == messages.c.peer_id)
    .join(workspaces, workspaces.c.id == messages.c.workspace_id)
)
FIELDS = {
    "id": Field(messages.c.public_id),
    "workspace_id": Field(workspaces.c.name),
    "session_id": Field(sessions.c.name),
    "peer_id": Field(peers.c.name),
    "token_count": Field(messages.c.token_count, "integer"),
    "created_at": Field(messages.c.created_at, "time"),
    "metadata": Field(messages.c.metadata, "json"),
}
INSERT = insert(messages)
INSERT_VECTORS = insert(message_vectors)
COUNT = update(sessions).where(sessions.c.id == bindparam("id_")).values(message_count=bindparam("message_count"))
INDEX = text("INSERT INTO message_index (rowid, scope, content) VALUES (:id, :scope, :content)")


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to append, with all that can be worked out before the write lock is held."""

    content: str
    peer: str
    metadata: str = "{}"
    configuration: Mapping[str, Any] = field(default_factory=dict)
    created_at: int | None = None
    file: str | None = None
    token_count: int = 0
    vectors: tuple[bytes, ...] = ()


def prepare_draft(
    content: str,
    peer: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    configuration: Mapping[str, Any] | None = None,
    created_at: int | None = None,
    file: str | None = None,
) -> Draft:
    """A draft with its tokens counted and its vectors made."""
    return Draft(
        content,
        peer,
        json.dumps(metadata or {}),
        configuration or {},
        created_at,
        file,
        count_tokens(content),
        tuple(embed_pieces(content)),
    )


@dataclass(frozen=True, slots=True)
class Appended:
    """A message as it was written."""

    id: int
    public_id: str
    peer_id: int
    seq: int
    created_at: int
    draft: Draft


def append_messages(tx: Tx, workspace: str, session: str, drafts: Sequence[Draft], at: int) -> list[Appended]:
    """Append in order. Session, authors and their membership are made where they are missing."""
    place, _ = ensure_session(tx, workspace, session, at)
    ids = ensure_peer_ids(tx, place.workspace_id, (draft.peer for draft in drafts), at)
    members = add_authors(tx, place, ids.values(), at)
    appended = [
        _insert(tx, place, ids[draft.peer], place.message_count + number, draft, at)
        for number, draft in enumerate(drafts, start=1)
    ]
    count = place.message_count + len(drafts)
    tx.execute(COUNT, {"id_": place.id, "message_count": count})
    by_author: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
    for message in appended:
        by_author.setdefault(message.peer_id, []).append((message.id, message.draft.configuration))
    queue_reasoning(tx, place, members, count, by_author, at)
    return appended


def _insert(tx: Tx, session: Row[Any], peer_id: int, seq: int, draft: Draft, at: int) -> Appended:
    public_id = new_id()
    created_at = at if draft.created_at is None else draft.created_at
    made = tx.execute(
        INSERT,
        {
            "public_id": public_id,
            "workspace_id": session.workspace_id,
            "session_id": session.id,
            "peer_id": peer_id,
            "seq": seq,
            "content": draft.content,
            "metadata": draft.metadata,
            "token_count": draft.token_count,
            "created_at": created_at,
            "file": draft.file,
        },
    )
    message_id = int(made.lastrowid)
    index_message(tx, message_id, session.workspace_id, session.id, peer_id, draft.content, draft.vectors)
    return Appended(message_id, public_id, peer_id, seq, created_at, draft)


def index_message(
    tx: Tx, message_id: int, workspace_id: int, session_id: int, peer_id: int, content: str, vectors: Sequence[bytes]
) -> None:
    """Make a message findable by its words and its meaning."""
    tx.execute(INDEX, {"id": message_id, "scope": f"w{workspace_id} s{session_id} p{peer_id}", "content": content})
    place = {"workspace_id": workspace_id, "session_id": session_id, "peer_id": peer_id, "message_id": message_id}
    rows = [{**place, "piece": piece, "vector": vector} for piece, vector in enumerate(vectors)]
    if rows:
        tx.execute(INSERT_VECTORS, rows)


def select_messages() -> Select[Any]:
    """Messages with the names that they are shown with."""
    return select(*COLUMNS).select_from(MESSAGES)


def get_message(tx: Tx, workspace: str, session: str, public_id: str) -> Row[Any]:
    """One message; refused when it is not in that session."""
    place = get_session(tx, workspace, session)
    query = select_messages().where(messages.c.session_id == place.id, messages.c.public_id == public_id)
    found = tx.execute(query).first()
    if found is None:
        raise Missing("Message", public_id)
    return found


def set_message_metadata(
    tx: Tx, workspace: str, session: str, public_id: str, metadata: Mapping[str, Any] | None
) -> Row[Any]:
    """Replace a message's metadata."""
    found = get_message(tx, workspace, session, public_id)
    if metadata is None:
        return found
    tx.execute(update(messages).where(messages.c.id == found.id).values(metadata=json.dumps(metadata)))
    return get_message(tx, workspace, session, public_id)


def list_messages(tx: Tx, workspace: str, session: str, filters: Mapping[str, Any] | None, page: Page) -> Paged:
    """A session's messages in the order they came; none for a session that does not exist."""
    condition = build_filter(filters, FIELDS)
    place = find_live_session(tx, workspace, session)
    if place is None:
        return Paged([], 0, page)
    if not filters:
        return _list_all(tx, place, page)
    query = select_messages().where(messages.c.session_id == place.id, condition)
    return fetch_page(tx, query, (messages.c.seq,), page)


def _list_all(tx: Tx, session: Row[Any], page: Page) -> Paged:
    """Without a filter a page is a range of numbers: the last page costs what the first does."""
    total = session.message_count
    start = min(page.offset, total)
    low, high = (total - start - page.size, total - start) if page.reverse else (start, start + page.size)
    rows = read_range(tx, session.id, max(low, 0) + 1, high)
    return Paged(rows[::-1] if page.reverse else rows, total, page)


def read_range(tx: Tx, session_id: int, first: int, last: int) -> list[Row[Any]]:
    """The messages of a session from number `first` to `last`, in order."""
    return list(tx.execute(RANGE, {"session_id": session_id, "first": first, "last": last}))


RANGE = (
    select_messages()
    .where(messages.c.session_id == bindparam("session_id"))
    .where(messages.c.seq >= bindparam("first"), messages.c.seq <= bindparam("last"))
    .order_by(messages.c.seq)
)
