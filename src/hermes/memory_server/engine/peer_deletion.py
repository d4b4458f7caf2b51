"""Deletion of a peer, with everything by and about it: hidden at once, removed from the file in the background."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from sqlalchemy import delete, or_, select, update

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
    sessions,
    summaries,
)
from hermes.memory_server.engine.answers import forget_peer_answers
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION, purge_conclusions, remove_messages
from hermes.memory_server.engine.departures import begin_generation
from hermes.memory_server.engine.job_kinds import PeerDeletionJob
from hermes.memory_server.engine.jobs import add_job, forget_peer
from hermes.memory_server.engine.merging import refuse_under_way
from hermes.memory_server.engine.messages import requeue_summaries
from hermes.memory_server.engine.peers import DELETED_PEER, get_peer
from hermes.memory_server.engine.tidying import queue_tidying
from hermes.memory_server.engine.truth import drop_tombstones
from hermes.memory_server.engine.workspaces import lock_workspace
from hermes.memory_server.faults import Conflict
from hermes.memory_server.ids import refuse_scopes


def delete_peer(tx: Tx, workspace: str, name: str, at: int) -> None:
    """Free the name at once, and hide and remove the peer's messages and all conclusions by and about it. Raise
    Conflict while it is being merged.
    """
    refuse_scopes(name)
    place = lock_workspace(tx, workspace)
    peer = get_peer(tx, workspace, name)
    if peer.name != name:
        raise Conflict(f"{name} was merged into {peer.name}; undo that merge first, or delete {peer.name}")
    refuse_under_way(tx, place.id, (peer.id,))
    _leave_sessions(tx, peer, at)
    forget_peer(tx, place.id, peer.id)
    forget_peer_answers(tx, place.id, name)
    _drop_merges(tx, place.id, peer.id, at)
    freed = {"name": f"{name}/{peer.uid}", "kind": DELETED_PEER, "metadata": "{}", "configuration": "{}"}
    tx.execute(update(peers).where(peers.c.id == peer.id).values(freed))
    _queue(tx, place.id, peer.id, at)


def _drop_merges(tx: Tx, workspace_id: int, peer_id: int, at: int) -> None:
    """Delete the merges of a peer, and with it the peers that were merged into it."""
    sides = or_(merges.c.into_id == peer_id, merges.c.from_id == peer_id)
    for merge in tx.execute(select(merges).where(merges.c.workspace_id == workspace_id, sides)).all():
        tx.execute(delete(merge_rows).where(merge_rows.c.merge_id == merge.id))
        tx.execute(delete(merges).where(merges.c.id == merge.id))
        if merge.into_id == peer_id and merge.state == "done":
            _drop_merges(tx, workspace_id, merge.from_id, at)
            forget_peer_answers(tx, workspace_id, merge.from_name)
            tx.execute(update(peers).where(peers.c.id == merge.from_id).values(kind=DELETED_PEER))
            _queue(tx, workspace_id, merge.from_id, at)


def _queue(tx: Tx, workspace_id: int, peer_id: int, at: int) -> None:
    add_job(tx, PeerDeletionJob(peer_id), f"deletion:{workspace_id}", at, workspace_id)


def _leave_sessions(tx: Tx, peer: Record, at: int) -> None:
    """Remove a peer from every session, and delete every summary that may quote it; these are made again."""
    been = select(memberships.c.session_id).where(memberships.c.peer_id == peer.id)
    tx.execute(update(sessions).where(sessions.c.id.in_(been)).values(removals=sessions.c.removals + 1))
    summed = select(summaries.c.session_id).where(summaries.c.session_id.in_(been))
    affected = tx.execute(select(sessions).where(sessions.c.id.in_(summed))).all()
    tx.execute(delete(summaries).where(summaries.c.session_id.in_(been)))
    tx.execute(delete(memberships).where(memberships.c.peer_id == peer.id))
    for row in affected:
        requeue_summaries(tx, row, at)


def purge_peer(tx: Tx, workspace_id: int, peer_id: int, at: int) -> bool:
    """Remove a part of the rest of a deleted peer. Return True if more is left."""
    own = select(messages).where(messages.c.peer_id == peer_id).order_by(messages.c.id).limit(ROWS_PER_TRANSACTION)
    rows = sorted(tx.execute(own).all(), key=attrgetter("session_id", "seq"))
    for _, said in groupby(rows, key=attrgetter("session_id")):
        remove_messages(tx, list(said), at)
    if rows:
        return True
    held = or_(collections.c.observer_id == peer_id, collections.c.observed_id == peer_id)
    inside = collections.c.workspace_id == workspace_id
    ids = list(tx.execute(select(collections.c.id).where(inside, held)).scalars())
    for collection_id in ids:
        if purge_conclusions(tx, conclusions.c.collection_id == collection_id, at):
            return True
        tx.execute(delete(cards).where(cards.c.collection_id == collection_id))
        tx.execute(delete(collections).where(collections.c.id == collection_id))
    drop_tombstones(tx, workspace_id, peer_id)
    begin_generation(tx, workspace_id)
    queue_tidying(tx, at)
    tx.execute(delete(peers).where(peers.c.id == peer_id))
    return False
