"""Standing conclusions: lasting facts, wishes and instructions of a peer, which every turn gets whatever it is
about.
"""

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

MAX_PER_KIND: Mapping[str, int] = {"name": 2, "instruction": 5, "identity": 6, "health": 5, "family": 6, "wish": 3}
"""The number of conclusions of each kind that are returned, the newest first."""
CATCH_UP_KEY = "standing_until"
"""The key in `meta` of the newest conclusion of an earlier version whose kind is still to be found. They are read from
the newest to the oldest.
"""
MARK = PreparedStatement(select(meta.c.value).where(meta.c.name == CATCH_UP_KEY))


def _select_standing(sessions: Sequence[int] | None = None) -> Select[Any]:
    """Return a query for the newest conclusions of each kind in one collection, limited to sessions if these are
    given.
    """
    live = (conclusions.c.collection_id == bindparam("collection"), LIVE, conclusions.c.superseded_by.is_(None))
    newest = select(conclusions.c.id).where(*live).order_by(conclusions.c.id.desc())
    if sessions is not None:
        # Only explicit conclusions surely come from one session.
        newest = newest.where(conclusions.c.session_id.in_(sessions), conclusions.c.level == "explicit")
    of_kinds = (
        newest.where(conclusions.c.standing == kind).limit(most).subquery() for kind, most in MAX_PER_KIND.items()
    )
    ids = union_all(*(select(part.c.id) for part in of_kinds))
    return select_conclusions().where(conclusions.c.id.in_(ids)).order_by(conclusions.c.id.desc())


OF_ONE = PreparedStatement(_select_standing())


def find_standing(tx: Tx, views: Sequence[View]) -> list[Record]:
    """Return the standing conclusions of these views by priority of their kind, then the newest first, each text
    once.
    """
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
    kinds = list(MAX_PER_KIND)
    return sorted(found.values(), key=lambda row: (kinds.index(row.standing), -row.created_at))


def catch_up_standing(tx: Tx, most: int) -> bool:
    """Find the kinds of up to `most` conclusions of an earlier version. Return True if more are left."""
    mark = MARK.first(tx)
    if mark is None:
        return False
    query = select(conclusions.c.id, conclusions.c.content).where(conclusions.c.id <= int(mark.value))
    rows = tx.execute(query.order_by(conclusions.c.id.desc()).limit(most)).all()
    for row in rows:
        if (kind := standing_kind(row.content)) is not None:
            tx.execute(update(conclusions).where(conclusions.c.id == row.id).values(standing=kind))
    if len(rows) < most:
        tx.execute(delete(meta).where(meta.c.name == CATCH_UP_KEY))
        return False
    tx.execute(update(meta).where(meta.c.name == CATCH_UP_KEY).values(value=str(rows[-1].id - 1)))
    return True
