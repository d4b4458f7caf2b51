"""Conclusions that always hold of a peer: found for every turn, whatever it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, bindparam, delete, select, union_all, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import conclusions, meta
from hermes.memory_server.engine.conclusions import digest, find_collection, select_conclusions
from hermes.memory_server.engine.recall import View
from hermes.memory_server.engine.standing_kinds import standing_kind
from hermes.memory_server.engine.truth import LIVE

MOST: Mapping[str, int] = {"name": 2, "instruction": 5, "identity": 6, "health": 5, "family": 6, "wish": 3}
"""How many of each kind are given, the newest first."""
UNTIL = "standing_until"
"""The name in `meta` of the newest conclusion of an earlier version whose kind is still to be found. They are read from
the newest to the oldest."""
MARK = PreparedStatement(select(meta.c.value).where(meta.c.name == UNTIL))


def _select_standing(sessions: Sequence[int] | None = None) -> Select[Any]:
    """Conclusions of one collection, the newest of each kind; where sessions are given, what was said in them."""
    live = (conclusions.c.collection_id == bindparam("collection"), LIVE, conclusions.c.superseded_by.is_(None))
    newest = select(conclusions.c.id).where(*live).order_by(conclusions.c.id.desc())
    if sessions is not None:
        # Only what was said has a session that it surely comes from.
        newest = newest.where(conclusions.c.session_id.in_(sessions), conclusions.c.level == "explicit")
    of_kinds = (newest.where(conclusions.c.standing == kind).limit(most).subquery() for kind, most in MOST.items())
    ids = union_all(*(select(part.c.id) for part in of_kinds))
    return select_conclusions().where(conclusions.c.id.in_(ids)).order_by(conclusions.c.id.desc())


OF_ONE = PreparedStatement(_select_standing())


def find_standing(tx: Tx, views: Sequence[View]) -> list[Record]:
    """Return what always holds, in the order of worth and the newest first, each text once."""
    found: dict[str, Record] = {}
    for view in views:
        collection = find_collection(tx, view.observer, view.observed)
        if collection is None:
            continue
        if view.sessions is None:
            rows = OF_ONE.rows(tx, collection=collection)
        else:
            rows = list(tx.execute(_select_standing(view.sessions), {"collection": collection}))
        for row in rows:
            found.setdefault(digest(row.content), row)
    kinds = list(MOST)
    return sorted(found.values(), key=lambda row: (kinds.index(row.standing), -row.created_at))


def catch_up_standing(tx: Tx, most: int) -> bool:
    """Find the kinds of so many conclusions of an earlier version. Is there more?"""
    mark = MARK.first(tx)
    if mark is None:
        return False
    query = select(conclusions.c.id, conclusions.c.content).where(conclusions.c.id <= int(mark.value))
    rows = tx.execute(query.order_by(conclusions.c.id.desc()).limit(most)).all()
    for row in rows:
        if (kind := standing_kind(row.content)) is not None:
            tx.execute(update(conclusions).where(conclusions.c.id == row.id).values(standing=kind))
    if len(rows) < most:
        tx.execute(delete(meta).where(meta.c.name == UNTIL))
        return False
    tx.execute(update(meta).where(meta.c.name == UNTIL).values(value=str(rows[-1].id - 1)))
    return True
