"""The rows that a merge of two peers moves, each with a note by which it can be moved back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, cast, delete, insert, literal, or_, select, tuple_, update

from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.tables import (
    cards,
    claims,
    collections,
    conclusions,
    jobs,
    memberships,
    merge_rows,
    message_vectors,
    messages,
    peers,
    sessions,
)
from hermes.memory_server.engine.conclusions import drop_conclusions, ensure_collection, mark_collection_changed
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION, runs
from hermes.memory_server.engine.truth import find_tombstone_time

SAME_STAY = cast(memberships.c.session_id, Text) + "@" + cast(memberships.c.joined_at, Text)
"""The columns that identify a membership, because its id may have been reused."""


def about(peer: Record) -> ColumnElement[bool]:
    """Return the condition for collections in which the peer is observer or observed."""
    held = or_(collections.c.observer_id == peer.id, collections.c.observed_id == peer.id)
    return and_(collections.c.workspace_id == peer.workspace_id, held)


def _note(tx: Tx, merge: Record, kind: str, rows: Sequence[JsonMap]) -> None:
    if rows:
        tx.execute(insert(merge_rows), [{"merge_id": merge.id, "kind": kind, "before": None, **row} for row in rows])


def move_messages(tx: Tx, merge: Record) -> bool:
    """Give some messages to the other peer. Return True if there were any."""
    rows = _give(tx, messages.c.peer_id == merge.from_id, merge.into_id)
    _note(tx, merge, "message", [{"row_id": row.id} for row in rows])
    return bool(rows)


def _give(tx: Tx, which: ColumnElement[bool], peer_id: int) -> Sequence[Record]:
    """Change the author of some messages, in the search tables too. Return the messages."""
    found = tx.execute(select(messages).where(which).order_by(messages.c.id).limit(ROWS_PER_TRANSACTION)).all()
    rows = sorted(found, key=attrgetter("session_id", "seq"))
    spans = [
        (session_id, *run)
        for session_id, said in groupby(rows, key=attrgetter("session_id"))
        for run in runs([row.seq for row in said])
    ]
    for span in spans:
        text_index(tx).remove_part(tx, *span)
    ids = [row.id for row in rows]
    tx.execute(update(messages).where(messages.c.id.in_(ids)).values(peer_id=peer_id))
    if rows:
        own = (message_vectors.c.workspace_id == rows[0].workspace_id, message_vectors.c.message_id.in_(ids))
        tx.execute(update(message_vectors).where(*own).values(peer_id=peer_id))
    for span in spans:
        text_index(tx).add_part(tx, *span)
    return rows


def move_conclusions(tx: Tx, merge: Record, at: int) -> bool:
    """Give some conclusions to the other peer. Return True if there were any."""
    gone = tx.execute(select(peers).where(peers.c.id == merge.from_id)).one()
    kept = tx.execute(select(peers).where(peers.c.id == merge.into_id)).one()
    rows = tx.execute(_held(gone)).all()
    for collection_id, held in groupby(rows, key=attrgetter("collection")):
        ids = _hand_over(tx, collection_id, list(held), gone.id, kept, at)
        _note(tx, merge, "conclusion", [{"row_id": row_id, "before": str(collection_id)} for row_id in ids])
    return bool(rows)


def move_cards(tx: Tx, merge: Record, gone: Record) -> None:
    """Give the cards by and about one peer to the other, unless it has its own. A person's card replaces one that no
    person wrote.
    """
    query = select(cards, collections.c.observer_id, collections.c.observed_id)
    for row in tx.execute(query.join_from(cards, collections).where(about(gone))).all():
        pair = [merge.into_id if side == gone.id else side for side in (row.observer_id, row.observed_id)]
        target = ensure_collection(tx, merge.workspace_id, pair[0], pair[1])
        theirs = [cards.c.collection_id == target]
        if row.written_by == "person":
            tx.execute(delete(cards).where(*theirs, cards.c.written_by != "person"))
        if tx.execute(select(cards.c.collection_id).where(*theirs)).first() is None:
            own = cards.c.collection_id == row.collection_id
            tx.execute(update(cards).where(own).values(collection_id=target))
            _note(tx, merge, "card", [{"row_id": target, "before": f"{row.collection_id}@{row.updated_at}"}])


def move_part(tx: Tx, session: Record, gone: Record, kept: Record, at: int) -> bool:
    """Give another peer some of one peer's messages in a session, then the conclusions from there, and at last its
    membership. Cards that may quote both are deleted. Return True if more is left.
    """
    said = (messages.c.session_id == session.id) & (messages.c.peer_id == gone.id)
    if _give(tx, said, kept.id):
        return True
    rows = tx.execute(_held(gone).where(conclusions.c.session_id == session.id)).all()
    for collection_id, held in groupby(rows, key=attrgetter("collection")):
        _hand_over(tx, collection_id, list(held), gone.id, kept, at)
    if rows:
        return True
    mixed = select(collections.c.id).where(about(gone))
    tx.execute(delete(cards).where(cards.c.collection_id.in_(mixed)))
    stays = (memberships.c.session_id == session.id, memberships.c.peer_id == gone.id)
    if tx.execute(select(memberships.c.id).where(stays[0], memberships.c.peer_id == kept.id)).first() is None:
        tx.execute(update(memberships).where(*stays).values(peer_id=kept.id))
    tx.execute(delete(memberships).where(*stays))
    open_jobs = (jobs.c.session_id == session.id, jobs.c.sender_id == gone.id)
    tx.execute(update(jobs).where(*open_jobs).values(sender_id=kept.id))
    return False


def _held(peer: Record) -> Select[Any]:
    """Return a query for the first conclusions by and about a peer, each with its collection."""
    query = select(conclusions.c.id, conclusions.c.content, conclusions.c.created_at)
    query = query.add_columns(
        collections.c.id.label("collection"), collections.c.observer_id, collections.c.observed_id
    )
    query = query.join_from(conclusions, collections)
    return query.where(about(peer)).order_by(collections.c.id).limit(ROWS_PER_TRANSACTION)


def _hand_over(
    tx: Tx, collection_id: int, held: Sequence[Record], gone_id: int, kept: Record, at: int
) -> Sequence[int]:
    """Move conclusions of one collection to the other peer's, and drop those that were deleted about it. Return the
    ids moved.
    """
    pair = [kept.id if side == gone_id else side for side in (held[0].observer_id, held[0].observed_id)]
    target = ensure_collection(tx, kept.workspace_id, pair[0], pair[1])
    deleted = [row.id for row in held if (find_tombstone_time(tx, target, row.content) or 0) >= row.created_at]
    drop_conclusions(tx, deleted, at)
    ids = [row.id for row in held if row.id not in deleted]
    _put_into(tx, ids, target)
    for touched in (collection_id, target):
        mark_collection_changed(tx, touched)
    return ids


def _put_into(tx: Tx, ids: Sequence[int], collection_id: int) -> None:
    tx.execute(update(conclusions).where(conclusions.c.id.in_(ids)).values(collection_id=collection_id))
    tx.execute(update(claims).where(claims.c.conclusion_id.in_(ids)).values(collection_id=collection_id))


def move_members(tx: Tx, merge: Record) -> None:
    """Give one peer's memberships to the other. Where both are members now, the other's membership is kept, and an
    earlier one ends where that begins.
    """
    other = memberships.alias("other")
    both = (
        *(memberships.c.peer_id == merge.from_id, memberships.c.left_seq.is_(None)),
        *(other.c.peer_id == merge.into_id, other.c.left_seq.is_(None), other.c.session_id == memberships.c.session_id),
    )
    for row in tx.execute(select(memberships, other.c.joined_seq.label("begins")).where(*both)).all():
        before = {column.name: getattr(row, column.name) for column in memberships.c}
        _note(tx, merge, "stay", [{"row_id": row.id, "before": json.dumps(before)}])
        own = memberships.c.id == row.id
        if row.joined_seq < row.begins:
            tx.execute(update(memberships).where(own).values(left_seq=row.begins))
        else:
            tx.execute(delete(memberships).where(own))
    left = select(literal(merge.id), literal("membership"), memberships.c.id, SAME_STAY)
    moved = left.where(memberships.c.peer_id == merge.from_id)
    tx.execute(insert(merge_rows).from_select(["merge_id", "kind", "row_id", "before"], moved))
    tx.execute(update(memberships).where(memberships.c.peer_id == merge.from_id).values(peer_id=merge.into_id))


def _noted(merge: Record, kind: str) -> Select[Any]:
    return select(merge_rows).where(merge_rows.c.merge_id == merge.id, merge_rows.c.kind == kind)


def bring_back(tx: Tx, merge: Record) -> None:
    """Undo `move_members` and `move_cards`."""
    noted = _noted(merge, "membership").with_only_columns(merge_rows.c.row_id)
    moved = or_(
        tuple_(memberships.c.id, SAME_STAY).in_(noted.add_columns(merge_rows.c.before)),
        memberships.c.id.in_(noted.where(merge_rows.c.before.is_(None))),  # notes of an earlier version have no more
    )
    tx.execute(update(memberships).where(memberships.c.peer_id == merge.into_id, moved).values(peer_id=merge.from_id))
    for row in tx.execute(_noted(merge, "stay")).all():
        _bring_stay_back(tx, merge, json.loads(row.before))
    for row in tx.execute(_noted(merge, "card")).all():
        _bring_card_back(tx, row)
    done = (merge_rows.c.merge_id == merge.id, merge_rows.c.kind.in_(("membership", "stay", "card")))
    tx.execute(delete(merge_rows).where(*done))


def _bring_stay_back(tx: Tx, merge: Record, before: dict[str, Any]) -> None:
    """Restore a membership unless its session is gone. It ends with the other peer's if that has been removed since."""
    here = memberships.c.session_id == before["session_id"], memberships.c.peer_id == merge.into_id
    ends = tx.execute(select(memberships.c.left_seq).where(*here)).scalars().all()
    left = max(ends) if ends and None not in ends else None
    same = [memberships.c[name] == before[name] for name in ("id", "session_id", "peer_id", "joined_at")]
    if tx.execute(update(memberships).where(*same).values(left_seq=left)).rowcount:
        return
    if tx.execute(select(sessions.c.id).where(sessions.c.id == before["session_id"])).first() is not None:
        stay = {name: value for name, value in before.items() if name != "id"}
        tx.execute(insert(memberships).values({**stay, "left_seq": left}))


def _bring_card_back(tx: Tx, noted: Record) -> None:
    """Restore a card, unless it was rewritten since: then the other peer keeps it."""
    own = [cards.c.collection_id == noted.row_id]
    if written := noted.before.partition("@")[2]:
        own.append(cards.c.updated_at == int(written))
    place = card_place(noted.before)
    if _is_there(tx, place):
        tx.execute(update(cards).where(*own).values(collection_id=place))


def _is_there(tx: Tx, collection_id: int) -> bool:
    """Return True if a collection exists. It is gone if one of its two peers was deleted."""
    return tx.execute(select(collections.c.id).where(collections.c.id == collection_id)).first() is not None


def move_back(tx: Tx, merge: Record) -> bool:
    """Move back a part of what was moved. Return True if there was any."""
    noted = tx.execute(_noted(merge, "message").limit(ROWS_PER_TRANSACTION)).all()
    if noted:
        still = (messages.c.id.in_([row.row_id for row in noted])) & (messages.c.peer_id == merge.into_id)
        _give(tx, still, merge.from_id)
    else:
        noted = tx.execute(_noted(merge, "conclusion").limit(ROWS_PER_TRANSACTION)).all()
        for before, rows in groupby(noted, key=attrgetter("before")):
            if not _is_there(tx, int(before)):
                continue
            ids = [row.row_id for row in rows]
            now = select(conclusions.c.collection_id).where(conclusions.c.id.in_(ids)).distinct()
            for touched in (*tx.execute(now).scalars(), int(before)):
                mark_collection_changed(tx, touched)
            _put_into(tx, ids, int(before))
    tx.execute(delete(merge_rows).where(merge_rows.c.id.in_([row.id for row in noted])))
    return bool(noted)


def card_place(before: str) -> int:
    """Return the collection that a card was in, from its note."""
    return int(before.partition("@")[0])
