"""Messages: appended in order; the same transaction makes them searchable and queues their derivation.

Messages to append, with everything that can be computed before the write lock is taken.

Queue the background work that new messages cause: derivation of conclusions, and due summaries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Integer, Select, and_, bindparam, delete, select, type_coerce, update

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.matching import facts_of
from hermes.memory_server.db.statements import PreparedForList, PreparedStatement, inserting, pipelined
from hermes.memory_server.db.tables import (
    message_facts,
    message_vectors,
    messages,
    peers,
    scope_sessions,
    sessions,
    workspaces,
)
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import Embedder, split_pieces, to_blob
from hermes.memory_server.engine.answers import KeyedRequest
from hermes.memory_server.engine.filters import Field, build_filter
from hermes.memory_server.engine.job_kinds import DerivationJob, SummaryJob, SummaryLength
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.members import add_authors
from hermes.memory_server.engine.narrowing import narrow
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import DELETED_PEER, ensure_peer_ids, follow_names
from hermes.memory_server.engine.sentences import message_traits
from hermes.memory_server.engine.sessions import ensure_session, find_live_session, get_session
from hermes.memory_server.engine.workspaces import resolve
from hermes.memory_server.faults import Missing
from hermes.memory_server.ids import new_id
from hermes.memory_server.threads import compute
from hermes.memory_server.tokens import count_tokens, is_ready_to_count

MAX_INLINE_CHARS = 20_000
"""From this length on, tokens are counted in a thread. Shorter texts are counted fast enough in the event loop."""


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message to append; `metadata` and `file` are JSON. `prepare_drafts` computes the rest. With an idempotency key
    it is appended once.
    """

    content: str
    peer: str
    metadata: str = "{}"
    configuration: Mapping[str, Any] = field(default_factory=dict)
    created_at: int | None = None
    file: str | None = None
    asked: KeyedRequest | None = None
    token_count: int = 0
    traits: int = 0
    vectors: tuple[bytes, ...] = ()


async def prepare_drafts(embedder: Embedder, drafts: Sequence[MessageDraft]) -> list[MessageDraft]:
    if is_ready_to_count() and sum(len(draft.content) for draft in drafts) < MAX_INLINE_CHARS:
        counted = [_count(draft) for draft in drafts]
    else:
        counted = [await compute(_count, draft) for draft in drafts]
    pieces = [split_pieces(draft.content) for draft in drafts]
    vectors = iter(await embedder.embed([piece for parts in pieces for piece in parts]))
    return [
        replace(draft, vectors=tuple(to_blob(next(vectors)) for _ in parts))
        for draft, parts in zip(counted, pieces, strict=True)
    ]


def _count(draft: MessageDraft) -> MessageDraft:
    return replace(draft, token_count=count_tokens(draft.content), traits=message_traits(draft.content))


NewMessages = Mapping[int, Sequence[tuple[int, JsonMap]]]
"""Per author: the ids of the messages, and the configuration that each was sent with."""
MESSAGES_PER_JOB = 10
"""The number of messages in one job: a job holds the write lock while it stores its results."""
SCOPES = PreparedStatement(
    select(scope_sessions.c.scope_id).where(scope_sessions.c.session_id == bindparam("session_id"))
)


def queue_reasoning(
    tx: Tx, session: Record, members: Mapping[int, Record], count: int, new: NewMessages, at: int
) -> None:
    """Queue the work that these messages, the last of `count`, cause."""
    workspace = session.workspace_configuration
    silent = [row.scope_id for row in SCOPES.rows(tx, session_id=session.id)]
    for author, given in new.items():
        wanted = [
            message_id
            for message_id, configuration in given
            if resolve(workspace, session.configuration, configuration).reasoning
        ]
        if wanted and _is_observed(members.get(author)):
            others = [peer for peer, row in members.items() if peer != author and row.observe_others]
            observers = list(dict.fromkeys([author, *others, *silent]))
            unit = f"representation:{session.workspace_id}:{session.id}:{author}"
            whose: dict[str, Any] = {"session_id": session.id, "sender_id": author, "observers": observers}
            for start in range(0, len(wanted), MESSAGES_PER_JOB):
                part = DerivationJob(wanted[start : start + MESSAGES_PER_JOB])
                add_job(tx, part, unit, at, session.workspace_id, **whose)
    _queue_summaries(tx, session, workspace, count, sum(len(given) for given in new.values()), at)


def _is_observed(member: Record | None) -> bool:
    if member is None:
        return False
    if member.observe_me is not None:
        return bool(member.observe_me)
    return json.loads(member.configuration).get("observe_me") is not False


def requeue_summaries(tx: Tx, session: Record, at: int) -> None:
    """Queue the newest summaries that a session can have, because the earlier ones became invalid."""
    configuration = select(workspaces.c.configuration).where(workspaces.c.id == session.workspace_id)
    count = session.message_count
    _queue_summaries(tx, session, tx.execute(configuration).scalar_one(), count, count, at)


def _queue_summaries(tx: Tx, session: Record, workspace: str, count: int, added: int, at: int) -> None:
    settings = resolve(workspace, session.configuration)
    if not settings.summaries:
        return
    spans: dict[SummaryLength, int] = {"short": settings.short_every, "long": settings.long_every}
    for length, every in spans.items():
        due = count // every * every
        if due > count - added:
            unit = f"summary:{session.workspace_id}:{session.id}"
            add_job(tx, SummaryJob(length, due), unit, at, session.workspace_id, session_id=session.id)


COLUMNS = (
    *messages.c,
    workspaces.c.name.label("workspace"),
    sessions.c.name.label("session"),
    type_coerce(sessions.c.is_active, Integer).label("is_shown"),  # a bool would cost a conversion per row
    peers.c.name.label("peer"),
)
MESSAGES = (
    messages.join(sessions, sessions.c.id == messages.c.session_id)
    .join(peers, and_(peers.c.id == messages.c.peer_id, peers.c.kind != DELETED_PEER))
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
INSERT = PreparedStatement(inserting(messages, *(column.name for column in messages.c if column.name != "id")))
INSERT_VECTORS = PreparedStatement(inserting(message_vectors))
INSERT_FACTS = PreparedStatement(inserting(message_facts))
FORGET_FACT = PreparedStatement(
    delete(message_facts).where(*(column == bindparam(column.name) for column in message_facts.c))
)
COUNT = PreparedStatement(
    update(sessions)
    .where(sessions.c.id == bindparam("id_"))
    .values(message_count=sessions.c.message_count + bindparam("added"))
)
IDS = PreparedStatement(
    select(messages.c.id)
    .where(messages.c.session_id == bindparam("session_id"), messages.c.seq > bindparam("after"))
    .order_by(messages.c.seq)
)


@dataclass(frozen=True, slots=True)
class Appended:
    """A message as it was stored."""

    id: int
    public_id: str
    peer_id: int
    created_at: int
    draft: MessageDraft


def append_messages(tx: Tx, workspace: str, session: str, drafts: Sequence[MessageDraft], at: int) -> list[Appended]:
    """Append messages in order. The session, the authors and their memberships are created if missing."""
    place, _ = ensure_session(tx, workspace, session, at)
    ids = ensure_peer_ids(tx, place.workspace_id, (draft.peer for draft in drafts), at)
    members = add_authors(tx, place, ids.values(), at)
    new = enumerate(drafts, start=place.message_count + 1)
    with pipelined(tx):
        appended = add_messages(tx, place, [(new_id(), seq, ids[draft.peer], draft) for seq, draft in new], at)
        COUNT.run(tx, id_=place.id, added=len(drafts))
        count = place.message_count + len(drafts)
        by_author: dict[int, list[tuple[int, JsonMap]]] = {}
        for message in appended:
            by_author.setdefault(message.peer_id, []).append((message.id, message.draft.configuration))
        queue_reasoning(tx, place, members, count, by_author, at)
    return appended


def add_messages(
    tx: Tx, session: Record, given: Sequence[tuple[str, int, int, MessageDraft]], at: int
) -> list[Appended]:
    """Insert messages after the session's last one, with their index entries. The session must be locked. Each message
    is given with its public id, its number and its author's row id.
    """
    drafts = [draft for *_, draft in given]
    rows = [
        {
            "public_id": public_id,
            "workspace_id": session.workspace_id,
            "session_id": session.id,
            "peer_id": peer_id,
            "seq": seq,
            "content": draft.content,
            "metadata": draft.metadata,
            "token_count": draft.token_count,
            "created_at": at if draft.created_at is None else draft.created_at,
            "file": draft.file,
        }
        for public_id, seq, peer_id, draft in given
    ]
    INSERT.run_many(tx, rows)
    ids = [int(row.id) for row in IDS.rows(tx, session_id=session.id, after=session.message_count)]
    appended = [
        Appended(message_id, row["public_id"], row["peer_id"], row["created_at"], draft)
        for message_id, row, draft in zip(ids, rows, drafts, strict=True)
    ]
    _index(tx, session, appended)
    return appended


def _index(tx: Tx, session: Record, appended: Sequence[Appended]) -> None:
    """Index messages by their words and their meaning."""
    place = {"workspace_id": session.workspace_id, "session_id": session.id}
    texts = [(message.id, message.peer_id, message.draft.content) for message in appended]
    text_index(tx).add(tx, session.workspace_id, session.id, texts)
    vectors = [
        {
            **place,
            "message_id": message.id,
            "peer_id": message.peer_id,
            "piece": piece,
            "vector": vector,
            "traits": message.draft.traits,
            "said_at": message.created_at,
        }
        for message in appended
        for piece, vector in enumerate(message.draft.vectors)
    ]
    INSERT_VECTORS.run_many(tx, vectors)
    for message in appended:
        keep_facts(tx, session.workspace_id, message.id, message.draft.metadata)


def keep_facts(tx: Tx, workspace_id: int, message_id: int, metadata: str) -> None:
    """Store a message's metadata as facts that filters can look up."""
    if facts := _facts(workspace_id, message_id, metadata):
        INSERT_FACTS.run_many(tx, facts)


def forget_facts(tx: Tx, workspace_id: int, message_id: int, metadata: str) -> None:
    """Delete what `keep_facts` stored."""
    FORGET_FACT.run_many(tx, _facts(workspace_id, message_id, metadata))


def _facts(workspace_id: int, message_id: int, metadata: str) -> list[dict[str, int]]:
    return [{"workspace_id": workspace_id, "fact": fact, "message_id": message_id} for fact in facts_of(metadata)]


def select_messages() -> Select[Any]:
    """Return a query for messages with the names that they are shown with."""
    return select(*COLUMNS).select_from(MESSAGES)


def find_messages(tx: Tx, ids: Iterable[int]) -> list[Record]:
    """Return the messages with these ids, in this order; missing ones are left out."""
    wanted = list(ids)
    found = {row.id: row for row in BY_IDS.rows(tx, wanted)}
    return [found[message_id] for message_id in wanted if message_id in found]


def get_message(tx: Tx, workspace: str, session: str, public_id: str) -> Record:
    """Return one message. Raise Missing if it is not in the session."""
    place = get_session(tx, workspace, session)
    query = select_messages().where(messages.c.session_id == place.id, messages.c.public_id == public_id)
    found = tx.execute(query).first()
    if found is None:
        raise Missing("Message", public_id, workspace)
    return found


def set_message_metadata(tx: Tx, workspace: str, session: str, public_id: str, metadata: JsonMap | None) -> Record:
    found = get_message(tx, workspace, session, public_id)
    if metadata is None:
        return found
    forget_facts(tx, found.workspace_id, found.id, found.metadata)
    keep_facts(tx, found.workspace_id, found.id, json.dumps(metadata))
    tx.execute(update(messages).where(messages.c.id == found.id).values(metadata=json.dumps(metadata)))
    return get_message(tx, workspace, session, public_id)


def list_messages(tx: Tx, workspace: str, session: str, filters: JsonMap | None, page: PageRequest) -> Paged:
    """Return a page of a session's messages in order; an empty page if the session does not exist."""
    place = find_live_session(tx, workspace, session)
    filters = filters if place is None else follow_names(tx, place.workspace_id, filters)
    condition = build_filter(filters, FIELDS)
    if place is None:
        return Paged([], 0, page)
    if not filters and place.removals == 0:
        return _list_all(tx, place, page)
    candidates = narrow(tx, SearchArea(place.workspace_id, (place.id,)), filters) if filters else None
    if candidates == []:
        return Paged([], 0, page)
    query = select_messages().where(condition)
    if candidates is None:
        query = query.where(messages.c.session_id == place.id)
    else:
        # A sum has no index: the database takes that of the ids, which are few.
        query = query.where(messages.c.id.in_(candidates), messages.c.session_id + 0 == place.id)
    return fetch_page(tx, query, (messages.c.seq,), page)


def _list_all(tx: Tx, session: Record, page: PageRequest) -> Paged:
    """Return a page without a filter. The numbers of the messages have no gaps, so a page is a range and the last one
    costs no more than the first.
    """
    total = session.message_count
    start = min(page.offset, total)
    low, high = (total - start - page.size, total - start) if page.reverse else (start, start + page.size)
    rows = read_range(tx, session.id, max(low, 0) + 1, high)
    return Paged(rows[::-1] if page.reverse else rows, total, page)


def read_range(tx: Tx, session_id: int, first: int, last: int) -> list[Record]:
    """Return the messages of a session from number `first` to `last`, in order."""
    return RANGE.rows(tx, session_id=session_id, first=first, last=last)


BY_IDS = PreparedForList(lambda ids: select_messages().where(messages.c.id.in_(ids)), at_once=25)
RANGE = PreparedStatement(
    select_messages()
    .where(messages.c.session_id == bindparam("session_id"))
    .where(messages.c.seq >= bindparam("first"), messages.c.seq <= bindparam("last"))
    .order_by(messages.c.seq)
)
