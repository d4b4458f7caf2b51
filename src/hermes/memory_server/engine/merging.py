"""Two peers that are one person: all that one said, held and that was held about it becomes the other's.

    begin ── messages, then conclusions, part by part ── end (members, cards, waiting work; the name leads to the other)

What was moved is noted for seven days, and can be moved back. What was written in between stays where it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, func, insert, literal, or_, select, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.tables import (
    cards,
    collections,
    conclusions,
    memberships,
    merge_rows,
    merges,
    message_vectors,
    messages,
    peers,
    workspaces,
)
from hermes.memory_server.engine.conclusions import ensure_collection, let_go
from hermes.memory_server.engine.deletion import PART
from hermes.memory_server.engine.jobs import Job, add_job, replace_peer
from hermes.memory_server.engine.names import refuse_scopes
from hermes.memory_server.engine.paging import Page, Paged, fetch_page
from hermes.memory_server.engine.peers import MERGED_PEER, get_peer
from hermes.memory_server.engine.removal import runs
from hermes.memory_server.engine.workspaces import get_workspace, lock_workspace
from hermes.memory_server.faults import Conflict, Invalid, Missing
from hermes.memory_server.ids import new_id

KEPT = 7 * 24 * 3600 * 1_000_000
"""Microseconds within which a merge can be undone."""
COLUMNS = (*merges.c, workspaces.c.name.label("workspace"))
MERGES = merges.join(workspaces, workspaces.c.id == merges.c.workspace_id)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a merge would move. A card stays behind where the other peer has one."""

    messages: int
    sessions: int
    conclusions: int
    cards: int


def preview_merge(tx: Tx, workspace: str, name: str, into: str) -> dict[str, int]:
    """How much would become the other peer's."""
    gone, _kept = _pair(tx, workspace, name, into)
    own = [
        select(func.count()).select_from(messages).where(messages.c.peer_id == gone.id),
        select(func.count(memberships.c.session_id.distinct())).where(memberships.c.peer_id == gone.id),
        select(func.count()).select_from(conclusions.join(collections)).where(_about(gone)),
        select(func.count()).select_from(cards.join(collections)).where(_about(gone)),
    ]
    return asdict(Preview(*(int(tx.execute(query).scalar_one()) for query in own)))


def begin_merge(tx: Tx, workspace: str, name: str, into: str, at: int) -> Record:
    """Note the merge and queue it. Both go on as two until all is moved."""
    place = lock_workspace(tx, workspace)
    gone, kept = _pair(tx, workspace, name, into)
    busy = select(merges.c.id).where(
        merges.c.workspace_id == place.id,
        merges.c.state.in_(("running", "undoing")),
        or_(*(merges.c[side].in_((gone.id, kept.id)) for side in ("from_id", "into_id"))),
    )
    if tx.execute(busy).first() is not None:
        raise Conflict(f"{name} or {into} is being merged already")
    public_id = new_id()
    row = {"public_id": public_id, "workspace_id": place.id, "from_id": gone.id, "into_id": kept.id}
    tx.execute(insert(merges).values(**row, from_name=name, into_name=into, state="running", created_at=at))
    _queue(tx, place.id, public_id, at)
    return get_merge(tx, workspace, public_id)


def get_merge(tx: Tx, workspace: str, public_id: str) -> Record:
    """One merge; refused when there is none."""
    place = get_workspace(tx, workspace)
    query = select(*COLUMNS).select_from(MERGES).where(merges.c.public_id == public_id)
    found = tx.execute(query.where(merges.c.workspace_id == place.id)).first()
    if found is None:
        raise Missing("Merge", public_id, workspace)
    return found


def list_merges(tx: Tx, workspace: str, page: Page) -> Paged:
    """The merges of a workspace, the oldest first."""
    own = merges.c.workspace_id == get_workspace(tx, workspace).id
    return fetch_page(tx, select(*COLUMNS).select_from(MERGES).where(own), (merges.c.id,), page)


def begin_undoing(tx: Tx, workspace: str, public_id: str, at: int) -> Record:
    """Let the name be its own peer again at once, and queue the way back of what was moved."""
    place = lock_workspace(tx, workspace)
    merge = get_merge(tx, workspace, public_id)
    if merge.state != "done":
        raise Conflict(f"The merge is {merge.state}; only one that is done can be undone")
    if merge.created_at < at - KEPT:
        raise Conflict("The merge is older than seven days; it cannot be undone any more")
    kept = tx.execute(select(peers.c.kind).where(peers.c.id == merge.into_id)).scalar_one_or_none()
    if kept != "peer":
        raise Conflict(f"{merge.into_name} was merged or deleted since; undo that first")
    tx.execute(update(peers).where(peers.c.id == merge.from_id).values(name=merge.from_name, kind="peer"))
    _bring_members_back(tx, merge)
    _set_state(tx, merge.id, "undoing")
    _queue(tx, place.id, public_id, at)
    return get_merge(tx, workspace, public_id)


def go_on_merging(tx: Tx, job: Job, at: int) -> None:
    """Move a part of a merge, there or back, and queue the rest."""
    found = select(merges).where(merges.c.public_id == job.payload["merge"]).with_for_update(key_share=True)
    merge = tx.execute(found).first()
    if merge is None:
        return
    if merge.state == "running":
        moved = _move_messages(tx, merge) or _move_conclusions(tx, merge)
        if not moved:
            _end(tx, merge)
    else:
        moved = merge.state == "undoing" and _move_back(tx, merge)
        if not moved:
            _let_search_see(tx, merge)
            _set_state(tx, merge.id, "undone")
    if moved:
        _queue(tx, merge.workspace_id, merge.public_id, at)


def forget_merges(tx: Tx, at: int) -> bool:
    """Drop a part of what was noted to undo merges that cannot be undone any more. Is there more to drop?"""
    old = select(merges.c.id).where(merges.c.created_at < at - KEPT)
    ids = list(tx.execute(select(merge_rows.c.id).where(merge_rows.c.merge_id.in_(old)).limit(1000)).scalars())
    tx.execute(delete(merge_rows).where(merge_rows.c.id.in_(ids)))
    return len(ids) == 1000


def _pair(tx: Tx, workspace: str, name: str, into: str) -> tuple[Record, Record]:
    refuse_scopes(name, into)
    gone, kept = get_peer(tx, workspace, name), get_peer(tx, workspace, into)
    if gone.id == kept.id:
        raise Invalid("A peer cannot be merged into itself")
    if gone.name != name:
        raise Invalid(f"{name} is merged into {gone.name} already")
    return gone, kept


def _about(peer: Record) -> ColumnElement[bool]:
    """What the peer holds, or what is held about it."""
    held = or_(collections.c.observer_id == peer.id, collections.c.observed_id == peer.id)
    return and_(collections.c.workspace_id == peer.workspace_id, held)


def _queue(tx: Tx, workspace_id: int, public_id: str, at: int) -> None:
    payload = {"merge": public_id}
    add_job(tx, "merge_peers", f"merge:{workspace_id}", at, workspace_id=workspace_id, payload=payload)


def _set_state(tx: Tx, merge_id: int, state: str) -> None:
    tx.execute(update(merges).where(merges.c.id == merge_id).values(state=state))


def _note(tx: Tx, merge: Record, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        tx.execute(insert(merge_rows), [{"merge_id": merge.id, "kind": kind, "before": None, **row} for row in rows])


def _move_messages(tx: Tx, merge: Record) -> bool:
    """Give some messages to the other. Were there any?"""
    rows = _give(tx, messages.c.peer_id == merge.from_id, merge.into_id)
    _note(tx, merge, "message", [{"row_id": row.id} for row in rows])
    return bool(rows)


def _give(tx: Tx, which: ColumnElement[bool], peer_id: int) -> Sequence[Record]:
    """Let some messages be another peer's, also where they are searched by author."""
    found = tx.execute(select(messages).where(which).order_by(messages.c.id).limit(PART)).all()
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


def _move_conclusions(tx: Tx, merge: Record) -> bool:
    """Give some conclusions to the other. Were there any?"""
    gone = tx.execute(select(peers).where(peers.c.id == merge.from_id)).one()
    query = select(conclusions.c.id, collections.c.id.label("collection"), collections.c.observer_id)
    query = query.add_columns(collections.c.observed_id).join_from(conclusions, collections)
    rows = tx.execute(query.where(_about(gone)).order_by(collections.c.id).limit(PART)).all()
    for collection_id, held in groupby(rows, key=attrgetter("collection")):
        found = list(held)
        pair = [merge.into_id if side == gone.id else side for side in (found[0].observer_id, found[0].observed_id)]
        target = ensure_collection(tx, merge.workspace_id, pair[0], pair[1])
        ids = [row.id for row in found]
        tx.execute(update(conclusions).where(conclusions.c.id.in_(ids)).values(collection_id=target))
        for touched in (collection_id, target):
            let_go(tx, touched)
        _note(tx, merge, "conclusion", [{"row_id": row_id, "before": str(collection_id)} for row_id in ids])
    return bool(rows)


def _end(tx: Tx, merge: Record) -> None:
    """Nothing is left to be moved in parts: from here on the name leads to the other."""
    gone = tx.execute(select(peers).where(peers.c.id == merge.from_id)).one()
    _move_cards(tx, merge, gone)
    _move_members(tx, merge)
    replace_peer(tx, merge.workspace_id, merge.from_id, merge.into_id)
    hidden = {"name": f"{gone.name}/{gone.uid}", "kind": MERGED_PEER}
    tx.execute(update(peers).where(peers.c.id == gone.id).values(hidden))
    _let_search_see(tx, merge)
    _set_state(tx, merge.id, "done")


def _let_search_see(tx: Tx, merge: Record) -> None:
    own = workspaces.c.id == merge.workspace_id
    tx.execute(update(workspaces).where(own).values(generation=workspaces.c.generation + 1))


def _move_cards(tx: Tx, merge: Record, gone: Record) -> None:
    query = select(cards.c.collection_id, collections.c.observer_id, collections.c.observed_id)
    for row in tx.execute(query.join_from(cards, collections).where(_about(gone))).all():
        pair = [merge.into_id if side == gone.id else side for side in (row.observer_id, row.observed_id)]
        target = ensure_collection(tx, merge.workspace_id, pair[0], pair[1])
        taken = select(cards.c.collection_id).where(cards.c.collection_id == target)
        if tx.execute(taken).first() is None:
            own = cards.c.collection_id == row.collection_id
            tx.execute(update(cards).where(own).values(collection_id=target))
            _note(tx, merge, "card", [{"row_id": target, "before": str(row.collection_id)}])


def _stays(peer_id: int) -> Select[Any]:
    return select(memberships).where(memberships.c.peer_id == peer_id)


def _move_members(tx: Tx, merge: Record) -> None:
    """The stays of one become the other's; where both are in a session now, one of the two stays is enough."""
    inside = select(memberships.c.session_id).where(
        memberships.c.peer_id == merge.into_id, memberships.c.left_seq.is_(None)
    )
    both = _stays(merge.from_id).where(memberships.c.left_seq.is_(None), memberships.c.session_id.in_(inside))
    for row in tx.execute(both).all():
        _note(tx, merge, "stay", [{"row_id": row.id, "before": json.dumps(dict(row._mapping))}])
        tx.execute(delete(memberships).where(memberships.c.id == row.id))
    left = select(literal(merge.id), literal("membership"), memberships.c.id)
    moved = left.where(memberships.c.peer_id == merge.from_id)
    tx.execute(insert(merge_rows).from_select(["merge_id", "kind", "row_id"], moved))
    tx.execute(update(memberships).where(memberships.c.peer_id == merge.from_id).values(peer_id=merge.into_id))


def _noted(merge: Record, kind: str) -> Select[Any]:
    return select(merge_rows).where(merge_rows.c.merge_id == merge.id, merge_rows.c.kind == kind)


def _bring_members_back(tx: Tx, merge: Record) -> None:
    ids = select(merge_rows.c.row_id).where(merge_rows.c.merge_id == merge.id, merge_rows.c.kind == "membership")
    tx.execute(update(memberships).where(memberships.c.id.in_(ids)).values(peer_id=merge.from_id))
    for noted in tx.execute(_noted(merge, "stay")).all():
        tx.execute(insert(memberships).values(json.loads(noted.before)))
    for noted in tx.execute(_noted(merge, "card")).all():
        own = cards.c.collection_id == noted.row_id
        tx.execute(update(cards).where(own).values(collection_id=int(noted.before)))
    done = (merge_rows.c.merge_id == merge.id, merge_rows.c.kind.in_(("membership", "stay", "card")))
    tx.execute(delete(merge_rows).where(*done))


def _move_back(tx: Tx, merge: Record) -> bool:
    """Bring a part of what was moved back. Was there any?"""
    noted = tx.execute(_noted(merge, "message").limit(PART)).all()
    if noted:
        still = (messages.c.id.in_([row.row_id for row in noted])) & (messages.c.peer_id == merge.into_id)
        _give(tx, still, merge.from_id)
    else:
        noted = tx.execute(_noted(merge, "conclusion").limit(PART)).all()
        for before, rows in groupby(noted, key=attrgetter("before")):
            ids = [row.row_id for row in rows]
            now = select(conclusions.c.collection_id).where(conclusions.c.id.in_(ids)).distinct()
            for touched in (*tx.execute(now).scalars(), int(before)):
                let_go(tx, touched)
            tx.execute(update(conclusions).where(conclusions.c.id.in_(ids)).values(collection_id=int(before)))
    tx.execute(delete(merge_rows).where(merge_rows.c.id.in_([row.id for row in noted])))
    return bool(noted)
