"""Conclusions: what an observer holds about an observed peer.

The sources and earlier texts of conclusions, and corrections by a person.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, bindparam, delete, exists, func, insert, or_, select, update

from hermes.memory_server import times
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.statements import (
    PreparedForList,
    PreparedInsert,
    PreparedStatement,
    in_parts,
    inserting,
    inserting_new,
)
from hermes.memory_server.db.tables import (
    cards,
    collections,
    conclusion_messages,
    conclusion_versions,
    conclusions,
    messages,
    peers,
    sessions,
    workspaces,
)
from hermes.memory_server.engine.answers import KeyedRequest
from hermes.memory_server.engine.filters import Field, build_filter
from hermes.memory_server.engine.messages import get_message, select_messages
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import follow_names, is_shown, peer_in
from hermes.memory_server.engine.sessions import session_in
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.tidying import queue_log_tidying
from hermes.memory_server.engine.truth import (
    LIVE,
    add_tombstones,
    find_tombstone_time,
    happened_at,
    release,
    settle,
    undo_supersession,
)
from hermes.memory_server.engine.workspaces import get_workspace, workspace_id_of
from hermes.memory_server.faults import Conflict, Missing
from hermes.memory_server.ids import new_id, refuse_scopes

LEVELS = frozenset({"explicit", "deductive", "inductive", "contradiction"})
observers = peers.alias("observers")
observed = peers.alias("observed")
twin, newer = conclusions.alias("twin"), conclusions.alias("newer")
SAYS_THE_SAME = and_(
    twin.c.collection_id == conclusions.c.collection_id,
    twin.c.digest == conclusions.c.digest,
    twin.c.level == conclusions.c.level,
    or_(twin.c.id == conclusions.c.id, and_(twin.c.session_id.is_not(None), conclusions.c.session_id.is_not(None))),
    twin.c.deleted_at.is_(None),
    twin.c.retired_at.is_(None),
)
"""SQL condition: the conclusion itself, or one from another session that says the same. Conclusions that clients
create without a session are kept apart.
"""
COLUMNS = (
    *(column for column in conclusions.c if column is not conclusions.c.vector),
    select(func.sum(twin.c.times_derived)).where(SAYS_THE_SAME).scalar_subquery().label("mentions"),
    newer.c.public_id.label("newer"),
    observers.c.name.label("observer"),
    observed.c.name.label("observed"),
    sessions.c.name.label("session"),
    workspaces.c.name.label("workspace"),
)
CONCLUSIONS = (
    conclusions.join(collections, collections.c.id == conclusions.c.collection_id)
    .join(observers, and_(observers.c.id == collections.c.observer_id, is_shown(observers)))
    .join(observed, and_(observed.c.id == collections.c.observed_id, is_shown(observed)))
    .join(workspaces, workspaces.c.id == conclusions.c.workspace_id)
    .outerjoin(sessions, sessions.c.id == conclusions.c.session_id)
    .outerjoin(newer, newer.c.id == conclusions.c.superseded_by)
)
IS_LAST = ~exists().where(
    SAYS_THE_SAME, twin.c.id > conclusions.c.id, twin.c.superseded_by.is_not_distinct_from(conclusions.c.superseded_by)
)
"""SQL condition: no later conclusion says the same in another session."""
FIELDS = {
    "id": Field(conclusions.c.public_id),
    "session_id": Field(sessions.c.name),
    "session_name": Field(sessions.c.name),
    "workspace_id": Field(workspaces.c.name),
    "workspace_name": Field(workspaces.c.name),
    "observer_id": Field(observers.c.name),
    "observer": Field(observers.c.name),
    "observed_id": Field(observed.c.name),
    "observed": Field(observed.c.name),
    "level": Field(conclusions.c.level, "text", LEVELS),
    "content": Field(conclusions.c.content),
    "created_at": Field(conclusions.c.created_at, "time"),
    "times_derived": Field(conclusions.c.times_derived, "integer"),
    "source_ids": Field(conclusions.c.source_ids, "ids"),
    "metadata": Field(conclusions.c.metadata, "json"),
}
OF_PEERS = frozenset({"observer_id", "observer", "observed_id", "observed", "level"})
"""Fields that are equal for all conclusions of a collection that say the same."""
BETWEEN = select(collections.c.id).where(
    collections.c.observer_id == bindparam("observer_id"), collections.c.observed_id == bindparam("observed_id")
)
PAIR = PreparedStatement(BETWEEN)
LOCK_PAIR = PreparedStatement(BETWEEN.with_for_update(key_share=True))
INSERT_PAIR = PreparedStatement(inserting_new(collections, "workspace_id", "observer_id", "observed_id"))
INSERT = PreparedInsert(
    conclusions,
    *("public_id", "workspace_id", "collection_id", "session_id", "content", "digest"),
    *("created_at", "vector", "standing", "happened_at", "learnt_at", "metadata"),
)
LINK = PreparedStatement(inserting(conclusion_messages))
READ_FROM_MESSAGES = PreparedForList(
    lambda ids: select(conclusion_messages.c.conclusion_id).where(conclusion_messages.c.conclusion_id.in_(ids)), 10
)
FORGOTTEN_AT_KEY = "forgotten_at"
"""The metadata key with the time at which the same conclusion was deleted before."""


@dataclass(frozen=True, slots=True)
class NewConclusion:
    """A conclusion that a client creates; with an idempotency key it is stored once."""

    content: str
    observer: str
    observed: str
    vector: bytes
    session: str | None = None
    asked: KeyedRequest | None = None


def select_conclusions() -> Select[Any]:
    """Return a query for the visible conclusions, with the names that they are shown with."""
    return select(*COLUMNS).select_from(CONCLUSIONS).where(LIVE)


def without_messages(tx: Tx, rows: Sequence[Record]) -> list[Record]:
    """Return the conclusions that come from no message."""
    read = {row.conclusion_id for row in READ_FROM_MESSAGES.rows(tx, [row.id for row in rows])}
    return [row for row in rows if row.id not in read]


BY_IDS = PreparedForList(lambda ids: select_conclusions().where(conclusions.c.id.in_(ids)))
BRIEF = tuple(
    conclusions.c[name]
    for name in ("id", "collection_id", "level", "digest", "content", "standing", "superseded_by", "created_at")
)
BRIEF_BY_IDS = PreparedForList(lambda ids: select(*BRIEF).where(conclusions.c.id.in_(ids), LIVE), at_once=50)


def create_conclusions(tx: Tx, workspace: str, given: Sequence[NewConclusion], at: int) -> list[Record]:
    """Store conclusions as given. Their peers and sessions must exist, and none may be about a scope."""
    place = get_workspace(tx, workspace)
    made: list[int] = []
    for new in given:
        pair = [peer_in(tx, place, name).id for name in (new.observer, new.observed)]
        refuse_scopes(new.observed)
        session_id = None if new.session is None else session_in(tx, place, new.session).id
        collection = ensure_collection(tx, place.id, *pair)
        made.append(insert_conclusion(tx, place.id, collection, session_id, new.content, at, at, vector=new.vector))
    return find_conclusions(tx, made)


def find_conclusions(tx: Tx, ids: Iterable[int]) -> list[Record]:
    """Return the conclusions with these ids, in this order; missing ones are left out."""
    wanted = list(ids)
    found = {row.id: row for row in BY_IDS.rows(tx, wanted)}
    return [found[row_id] for row_id in wanted if row_id in found]


def find_brief(tx: Tx, ids: Iterable[int]) -> dict[int, Record]:
    """Return the columns that ranking needs, by conclusion id."""
    return {row.id: row for row in BRIEF_BY_IDS.rows(tx, list(ids))}


def insert_conclusion(
    tx: Tx,
    workspace_id: int,
    collection_id: int,
    session_id: int | None,
    content: str,
    said_at: int,
    at: int,
    *,
    vector: bytes,
    message_ids: Iterable[int] = (),
) -> int:
    """Insert an explicit conclusion, settle what it changes, and return its row id."""
    buried = find_tombstone_time(tx, collection_id, content)
    metadata = {} if buried is None else {FORGOTTEN_AT_KEY: times.to_wire(buried)}
    made = INSERT.add(
        tx,
        public_id=new_id(),
        workspace_id=workspace_id,
        collection_id=collection_id,
        session_id=session_id,
        content=content,
        digest=digest(content),
        created_at=said_at,
        vector=vector,
        standing=standing_kind(content),
        happened_at=happened_at(content, said_at),
        learnt_at=at,
        metadata=json.dumps(metadata),
    )
    link_messages(tx, made, message_ids)
    settle(tx, made, at)
    return made


def link_messages(tx: Tx, conclusion_id: int, message_ids: Iterable[int]) -> None:
    """Store which messages a conclusion comes from."""
    LINK.run_many(tx, [{"message_id": message, "conclusion_id": conclusion_id} for message in message_ids])


def twins(tx: Tx, row: Record) -> list[int]:
    """Return the ids of the conclusions of the collection that say the same, one per session."""
    same = (conclusions.c.collection_id == row.collection_id, conclusions.c.digest == row.digest, LIVE)
    return list(tx.execute(select(conclusions.c.id).where(*same, conclusions.c.level == row.level)).scalars())


def message_ids(tx: Tx, ids: Sequence[int]) -> list[int]:
    """Return the ids of the messages that conclusions come from, the oldest first."""
    query = select(conclusion_messages.c.message_id).where(conclusion_messages.c.conclusion_id.in_(ids)).distinct()
    return list(tx.execute(query.order_by(conclusion_messages.c.message_id)).scalars())


def digest(content: str) -> str:
    """Return a hash that ignores case and surrounding spaces."""
    return hashlib.sha256(content.strip().lower().encode()).hexdigest()[:24]


def ensure_collection(tx: Tx, workspace_id: int, observer_id: int, observed_id: int) -> int:
    """Return the id of the collection of one peer's conclusions about another, created if missing, and locked until
    this transaction ends.
    """
    found = lock_collection(tx, observer_id, observed_id)
    if found is not None:
        return found
    INSERT_PAIR.run(tx, workspace_id=workspace_id, observer_id=observer_id, observed_id=observed_id)
    return int(LOCK_PAIR.rows(tx, observer_id=observer_id, observed_id=observed_id)[0].id)


def lock_collection(tx: Tx, observer_id: int, observed_id: int) -> int | None:
    """Like `ensure_collection`, but return None if the collection does not exist."""
    found = LOCK_PAIR.first(tx, observer_id=observer_id, observed_id=observed_id)
    return None if found is None else int(found.id)


def find_collection(tx: Tx, observer_id: int, observed_id: int) -> int | None:
    """Return the id of the collection without a lock, or None if it does not exist."""
    found = PAIR.first(tx, observer_id=observer_id, observed_id=observed_id)
    return None if found is None else int(found.id)


def get_conclusion(tx: Tx, workspace: str, public_id: str) -> Record:
    """Return one conclusion. Raise Missing if it does not exist or was deleted."""
    place = get_workspace(tx, workspace)
    query = select_conclusions().where(conclusions.c.public_id == public_id, conclusions.c.workspace_id == place.id)
    found = tx.execute(query).first()
    if found is None:
        raise Missing("Conclusion", public_id, workspace)
    return found


def delete_conclusion(tx: Tx, workspace: str, public_id: str, at: int) -> None:
    """Delete a conclusion, its equals of other sessions and its copies in scopes. It is removed from the file as well,
    and is not created again from old messages.
    """
    found = get_conclusion(tx, workspace, public_id)
    add_tombstones(tx, found.collection_id, [found.content], at)
    own = select(collections.c.observed_id).where(collections.c.id == found.collection_id).scalar_subquery()
    scoped = and_(collections.c.observed_id == own, peers.c.kind == "scope")
    held = select(conclusions.c.id, conclusions.c.collection_id).join_from(conclusions, collections)
    held = held.join(peers, peers.c.id == collections.c.observer_id).where(conclusions.c.digest == found.digest)
    rows = tx.execute(held.where(or_(collections.c.id == found.collection_id, scoped))).all()
    for collection_id in {row.collection_id for row in rows}:
        remove_conclusions(tx, [row.id for row in rows if row.collection_id == collection_id], collection_id, at)
    queue_log_tidying(tx, at)


def remove_conclusions(tx: Tx, ids: Sequence[int], collection_id: int, at: int) -> None:
    """Remove conclusions of one collection, and mark the collection as changed."""
    drop_conclusions(tx, ids, at)
    mark_collection_changed(tx, collection_id)
    trim_card(tx, collection_id)


def drop_conclusions(tx: Tx, ids: Sequence[int], at: int) -> None:
    """Remove the rows of conclusions and everything that belongs to them. Conclusions that they superseded are current
    again.
    """
    for part in in_parts(ids):
        for table in (conclusion_messages, conclusion_versions):
            tx.execute(delete(table).where(table.c.conclusion_id.in_(part)))
        tx.execute(delete(conclusions).where(conclusions.c.id.in_(part)))
    release(tx, ids, at)


def mark_collection_changed(tx: Tx, collection_id: int) -> None:
    """Mark a collection as changed, so that processes that cache its vectors read them again."""
    tx.execute(
        update(collections).where(collections.c.id == collection_id).values(generation=collections.c.generation + 1)
    )


def trim_card(tx: Tx, collection_id: int) -> None:
    """Remove from a card that no person wrote the lines that no conclusion states any more."""
    made = (cards.c.collection_id == collection_id, cards.c.written_by == "dream")
    stored = tx.execute(select(cards.c.lines).where(*made)).scalar_one_or_none()
    lines: list[str] = [] if stored is None else json.loads(stored)
    held = (conclusions.c.collection_id == collection_id, LIVE, conclusions.c.superseded_by.is_(None))
    live = select(conclusions.c.id).where(*held)
    left = [line for line in lines if tx.execute(live.where(conclusions.c.digest == digest(line)).limit(1)).first()]
    if not left:
        tx.execute(delete(cards).where(*made))
    elif left != lines:
        tx.execute(update(cards).where(*made).values(lines=json.dumps(left)))


def list_conclusions(tx: Tx, workspace: str, filters: JsonMap | None, page: PageRequest) -> Paged:
    """Return a page of conclusions, the newest first, or the oldest first with `reverse`; an empty page if the
    workspace does not exist. Equal conclusions of several sessions are one row, unless the filter uses more than
    peers and level.
    """
    place = workspace_id_of(tx, workspace)
    own = [conclusions.c.workspace_id == place, build_filter(follow_names(tx, place, filters), FIELDS)]
    if OF_PEERS.issuperset(filters or ()):
        own.append(IS_LAST)
    query = select_conclusions().where(*own)
    newest_first = PageRequest(page.number, page.size, reverse=not page.reverse)
    paged = fetch_page(tx, query, (conclusions.c.id,), newest_first)
    return Paged(paged.rows, paged.total, page)


MAX_VERSIONS = 100
"""The number of times that one conclusion can be edited."""


def list_sources(tx: Tx, workspace: str, public_id: str, page: PageRequest) -> Paged:
    """Return a page of the messages that a conclusion comes from, in any session, the oldest first."""
    same = twins(tx, get_conclusion(tx, workspace, public_id))
    linked = select(conclusion_messages.c.message_id).where(conclusion_messages.c.conclusion_id.in_(same))
    query = select_messages().where(messages.c.id.in_(linked), sessions.c.is_active.is_(True))
    return fetch_page(tx, query, (messages.c.id,), page)


def list_concluded(tx: Tx, workspace: str, session: str, public_id: str, page: PageRequest) -> Paged:
    """Return a page of the conclusions from a message, the oldest first; each observer has its own."""
    found = get_message(tx, workspace, session, public_id)
    linked = select(conclusion_messages.c.conclusion_id).where(conclusion_messages.c.message_id == found.id)
    return fetch_page(tx, select_conclusions().where(conclusions.c.id.in_(linked)), (conclusions.c.id,), page)


def edit_conclusion(tx: Tx, workspace: str, public_id: str, content: str, vector: bytes, at: int) -> Record:
    """Replace the text of a conclusion, and keep the earlier text as a version."""
    found = get_conclusion(tx, workspace, public_id)
    if found.content == content:
        return found
    earlier = select(func.count()).where(conclusion_versions.c.conclusion_id == found.id)
    number = tx.execute(earlier).scalar_one() + 1
    if number > MAX_VERSIONS:
        raise Conflict(f"A conclusion can be edited at most {MAX_VERSIONS} times")
    version = {"conclusion_id": found.id, "number": number, "content": found.content, "replaced_at": at}
    tx.execute(insert(conclusion_versions).values(version))
    _gather_twins(tx, found, at)
    changes = {"content": content, "digest": digest(content), "vector": vector, "standing": standing_kind(content)}
    tx.execute(update(conclusions).where(conclusions.c.id == found.id).values(changes))
    release(tx, [found.id], at)
    settle(tx, found.id, at)
    mark_collection_changed(tx, found.collection_id)
    trim_card(tx, found.collection_id)
    return get_conclusion(tx, workspace, public_id)


def _gather_twins(tx: Tx, kept: Record, at: int) -> None:
    """Move the sources of equal conclusions of other sessions to this one, and delete the others."""
    others = [row_id for row_id in twins(tx, kept) if row_id != kept.id]
    if others:
        new = set(message_ids(tx, others)).difference(message_ids(tx, [kept.id]))
        drop_conclusions(tx, others, at)
        link_messages(tx, kept.id, sorted(new))


def list_versions(tx: Tx, workspace: str, public_id: str, page: PageRequest) -> Paged:
    """Return a page of a conclusion's earlier texts, the oldest first."""
    found = get_conclusion(tx, workspace, public_id)
    query = select(conclusion_versions).where(conclusion_versions.c.conclusion_id == found.id)
    return fetch_page(tx, query, (conclusion_versions.c.number,), page)


def undo_change(tx: Tx, workspace: str, public_id: str, at: int) -> Record:
    """Undo a supersession for good, so that both conclusions are current. Return the pair."""
    row = undo_supersession(tx, get_workspace(tx, workspace).id, public_id, at)
    trim_card(tx, row.collection_id)
    return row
