"""Which merge stands in the way: what one moved may have been moved on by another, which is then undone first."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import or_, select

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.tables import merge_rows, merges
from hermes.memory_server.faults import Conflict

UNDER_WAY = ("running", "undoing")


def refuse_under_way(tx: Tx, workspace_id: int, peer_ids: Iterable[int]) -> None:
    """Refuse to touch peers of which one is being merged, or of which a merge is being undone."""
    sides = or_(*(merges.c[side].in_([*peer_ids]) for side in ("from_id", "into_id")))
    busy = select(merges).where(merges.c.workspace_id == workspace_id, merges.c.state.in_(UNDER_WAY), sides)
    merge = tx.execute(busy.limit(1)).first()
    if merge is not None:
        raise Conflict(f"{_name(merge)} is {merge.state}; try again when it has come to its end")


def refuse_before_later(tx: Tx, merge: Record) -> None:
    """Refuse to undo a merge while a later one stands that has touched its peers or what it moved."""
    same = (merges.c.workspace_id == merge.workspace_id, merges.c.id > merge.id)
    standing = merges.c.state.in_((*UNDER_WAY, "done"))
    for later in tx.execute(select(merges).where(*same, standing).order_by(merges.c.id.desc())).all():
        if later.state == "running":
            raise Conflict(f"{_name(later)} is running; try again when it has come to its end")
        is_apart = {merge.from_id, merge.into_id}.isdisjoint((later.from_id, later.into_id))
        if not is_apart or _moved_the_same(tx, merge, later):
            raise Conflict(f"{_name(later)} came later; undo that first")


def _name(merge: Record) -> str:
    return f"The merge {merge.public_id} of {merge.from_name} into {merge.into_name}"


def _moved_the_same(tx: Tx, merge: Record, later: Record) -> bool:
    """What a third peer held about one of the two belongs to both merges when that peer was merged later. A card is
    noted by where it was put, and by where it was before."""
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


def card_place(before: str) -> int:
    """The collection that a card was in, of the note that was made of it."""
    return int(before.partition("@")[0])
