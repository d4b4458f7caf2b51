"""Merges of two peers that are one person: all messages and conclusions of one become the other's.

begin ── messages, then conclusions, part by part ── end (members, cards, jobs; the name leads to the other)

Moved rows are noted for seven days, and can be moved back. Rows written in between stay where they were written.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, func, insert, or_, select, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.tables import (
    cards,
    collections,
    conclusions,
    memberships,
    merge_rows,
    merges,
    messages,
    peers,
)
from hermes.memory_server.engine.cards import keep_card
from hermes.memory_server.engine.departures import READ_ALL_AGAIN, begin_generation, note_departed
from hermes.memory_server.engine.job_kinds import PeerMergeJob
from hermes.memory_server.engine.jobs import add_job, replace_peer
from hermes.memory_server.engine.merge_moves import (
    about,
    bring_back,
    card_place,
    move_back,
    move_cards,
    move_conclusions,
    move_members,
    move_messages,
    move_part,
)
from hermes.memory_server.engine.paging import Paged, PageRequest, fetch_page
from hermes.memory_server.engine.peers import MERGED_PEER, ensure_peer, get_peer
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.truth import give_tombstones
from hermes.memory_server.engine.workspaces import get_workspace, lock_workspace
from hermes.memory_server.faults import Conflict, Invalid, Missing
from hermes.memory_server.ids import new_id, refuse_scopes

UNDO_WINDOW_MICROSECONDS = 7 * 24 * 3600 * 1_000_000
"""The time within which a merge can be undone."""
UNDER_WAY = ("running", "undoing")


def preview_merge(tx: Tx, workspace: str, name: str, into: str) -> dict[str, int]:
    """Return how many rows would move to the other peer. A card is not moved if the other peer has one."""
    gone, _kept = _pair(tx, workspace, name, into)
    own = {
        "messages": select(func.count()).select_from(messages).where(messages.c.peer_id == gone.id),
        "sessions": select(func.count(memberships.c.session_id.distinct())).where(memberships.c.peer_id == gone.id),
        "conclusions": select(func.count()).select_from(conclusions.join(collections)).where(about(gone)),
        "cards": select(func.count()).select_from(cards.join(collections)).where(about(gone)),
    }
    return {kind: int(tx.execute(query).scalar_one()) for kind, query in own.items()}


def move_in_session(tx: Tx, workspace: str, session: str, name: str, to: str, at: int) -> bool:
    """Give another peer, created if missing, some of a peer's messages in one session. Return True if more is left."""
    refuse_scopes(name, to)
    place = lock_workspace(tx, workspace)
    here, gone = get_session(tx, workspace, session), get_peer(tx, workspace, name)
    kept, _ = ensure_peer(tx, workspace, to, at)
    if gone.id == kept.id:
        raise Invalid("A peer cannot be moved to itself")
    refuse_under_way(tx, place.id, (gone.id, kept.id))
    is_more = move_part(tx, here, gone, kept, at)
    note_departed(tx, place.id, [READ_ALL_AGAIN])  # authors changed
    begin_generation(tx, place.id)
    return is_more


def begin_merge(tx: Tx, workspace: str, name: str, into: str, at: int) -> Record:
    """Store the merge and queue it. Both peers stay separate until everything is moved."""
    place = lock_workspace(tx, workspace)
    gone, kept = _pair(tx, workspace, name, into)
    refuse_under_way(tx, place.id, (gone.id, kept.id))
    public_id = new_id()
    row = {"public_id": public_id, "workspace_id": place.id, "from_id": gone.id, "into_id": kept.id}
    tx.execute(insert(merges).values(**row, from_name=name, into_name=kept.name, state="running", created_at=at))
    _queue(tx, place.id, public_id, at)
    return get_merge(tx, workspace, public_id)


def get_merge(tx: Tx, workspace: str, public_id: str) -> Record:
    """Return one merge. Raise Missing if it does not exist."""
    place = get_workspace(tx, workspace)
    own = (merges.c.public_id == public_id, merges.c.workspace_id == place.id)
    found = tx.execute(select(merges).where(*own)).first()
    if found is None:
        raise Missing("Merge", public_id, workspace)
    return found


def list_merges(tx: Tx, workspace: str, page: PageRequest) -> Paged:
    """Return a page of a workspace's merges, the oldest first."""
    own = merges.c.workspace_id == get_workspace(tx, workspace).id
    return fetch_page(tx, select(merges).where(own), (merges.c.id,), page)


def begin_undoing(tx: Tx, workspace: str, public_id: str, at: int) -> Record:
    """Make the name a separate peer again at once, and queue moving its rows back."""
    place = lock_workspace(tx, workspace)
    merge = get_merge(tx, workspace, public_id)
    if merge.state != "done":
        raise Conflict(f"The merge is {merge.state}; only a merge that is done can be undone")
    if merge.created_at < at - UNDO_WINDOW_MICROSECONDS:
        raise Conflict("The merge is older than seven days; it cannot be undone any more")
    refuse_before_later(tx, merge)
    taken = select(peers.c.id).where(peers.c.workspace_id == place.id, peers.c.name == merge.from_name)
    if tx.execute(taken.where(peers.c.id != merge.from_id)).first() is not None:
        raise Conflict(f"Another peer is named {merge.from_name} now; delete or merge that first")
    tx.execute(update(peers).where(peers.c.id == merge.from_id).values(name=merge.from_name, kind="peer"))
    bring_back(tx, merge)
    _set_state(tx, merge.id, "undoing")
    _queue(tx, place.id, public_id, at)
    return get_merge(tx, workspace, public_id)


def continue_merge(tx: Tx, public_id: str, at: int) -> bool:
    """Move a part of a merge, in either direction. Return True if more is left."""
    found = select(merges).where(merges.c.public_id == public_id).with_for_update(key_share=True)
    merge = tx.execute(found).first()
    if merge is None:
        return False
    if merge.state == "running":
        moved = move_messages(tx, merge) or move_conclusions(tx, merge, at)
        if not moved:
            _end(tx, merge)
    else:
        moved = merge.state == "undoing" and move_back(tx, merge)
        if not moved:
            _announce_to_searches(tx, merge)
            _make_cards(tx, merge, at)
            _set_state(tx, merge.id, "undone")
    return moved


def forget_merges(tx: Tx, at: int) -> bool:
    """Delete some of the notes of merges that can no longer be undone. Return True if more are left."""
    old = select(merges.c.id).where(
        merges.c.created_at < at - UNDO_WINDOW_MICROSECONDS, merges.c.state.not_in(UNDER_WAY)
    )
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


def _queue(tx: Tx, workspace_id: int, public_id: str, at: int) -> None:
    add_job(tx, PeerMergeJob(public_id), f"merge:{workspace_id}", at, workspace_id)


def _set_state(tx: Tx, merge_id: int, state: str) -> None:
    tx.execute(update(merges).where(merges.c.id == merge_id).values(state=state))


def _end(tx: Tx, merge: Record) -> None:
    """Finish a merge after its parts: from now on the name leads to the other peer."""
    gone = tx.execute(select(peers).where(peers.c.id == merge.from_id)).one()
    move_cards(tx, merge, gone)
    move_members(tx, merge)
    give_tombstones(tx, merge.workspace_id, merge.from_id, merge.into_id)
    replace_peer(tx, merge.workspace_id, merge.from_id, merge.into_id)
    hidden = {"name": f"{gone.name}/{gone.uid}", "kind": MERGED_PEER}
    tx.execute(update(peers).where(peers.c.id == gone.id).values(hidden))
    _announce_to_searches(tx, merge)
    _set_state(tx, merge.id, "done")


def _make_cards(tx: Tx, merge: Record, at: int) -> None:
    """Rewrite the automatic cards that a person's card had replaced."""
    for peer in tx.execute(select(peers).where(peers.c.id.in_((merge.from_id, merge.into_id)))).all():
        for row in tx.execute(select(collections).where(about(peer))).all():
            keep_card(tx, merge.workspace_id, row.observer_id, row.observed_id, (), at)


def _announce_to_searches(tx: Tx, merge: Record) -> None:
    note_departed(tx, merge.workspace_id, [READ_ALL_AGAIN])  # authors changed
    begin_generation(tx, merge.workspace_id)


def refuse_under_way(tx: Tx, workspace_id: int, peer_ids: Iterable[int]) -> None:
    """Raise Conflict if one of these peers is being merged, or a merge of it is being undone."""
    sides = or_(*(merges.c[side].in_([*peer_ids]) for side in ("from_id", "into_id")))
    busy = select(merges).where(merges.c.workspace_id == workspace_id, merges.c.state.in_(UNDER_WAY), sides)
    merge = tx.execute(busy.limit(1)).first()
    if merge is not None:
        raise Conflict(f"{_name(merge)} is {merge.state}; try again when it has finished")


def refuse_before_later(tx: Tx, merge: Record) -> None:
    """Raise Conflict if a later merge, not undone, has touched the peers or rows of this one."""
    same = (merges.c.workspace_id == merge.workspace_id, merges.c.id > merge.id)
    standing = merges.c.state.in_((*UNDER_WAY, "done"))
    for later in tx.execute(select(merges).where(*same, standing).order_by(merges.c.id.desc())).all():
        if later.state == "running":
            raise Conflict(f"{_name(later)} is running; try again when it has finished")
        is_apart = {merge.from_id, merge.into_id}.isdisjoint((later.from_id, later.into_id))
        if not is_apart or _moved_the_same(tx, merge, later):
            raise Conflict(f"{_name(later)} came later; undo that merge first")


def _name(merge: Record) -> str:
    return f"The merge {merge.public_id} of {merge.from_name} into {merge.into_name}"


def _moved_the_same(tx: Tx, merge: Record, later: Record) -> bool:
    """Return True if both merges moved the same row: a third peer's conclusions or card about one of the two, if that
    peer was merged later. A card is noted by its collection before and after.
    """
    first, second = merge_rows.alias("first"), merge_rows.alias("second")
    both = (first.c.merge_id == merge.id, second.c.merge_id == later.id, first.c.kind == second.c.kind)
    conclusion = (first.c.kind == "conclusion") & (first.c.row_id == second.c.row_id)
    found = select(first.c.id).where(*both, conclusion).limit(1)
    if tx.execute(found).first() is not None:
        return True
    puts = select(merge_rows.c.row_id).where(merge_rows.c.merge_id == merge.id, merge_rows.c.kind == "card")
    took = select(merge_rows.c.before).where(merge_rows.c.merge_id == later.id, merge_rows.c.kind == "card")
    taken = {card_place(before) for before in tx.execute(took).scalars()}
    return not taken.isdisjoint(tx.execute(puts).scalars())
