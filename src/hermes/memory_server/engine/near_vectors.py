"""Vector search in scopes with too many vectors to keep in memory, using the database's vector index if it has one.

The index gives vectors that may be near; these are read and compared like those of a small scope. If a filter leaves
EXACT_ROWS or fewer, or if the index finds too few, every vector of the scope is compared.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from sqlalchemy import exists, func, select, text

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.dialects import neighbour_index
from hermes.memory_server.db.neighbours import EXACT_ROWS, NeighbourIndex, VectorScope
from hermes.memory_server.db.scheduling import check_reading
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import OPEN_JOB, conclusion_messages, conclusions, jobs
from hermes.memory_server.embedder import Vector
from hermes.memory_server.engine.job_kinds import IndexingJob
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.memory_index import OutlineRows, Positions, signs_of
from hermes.memory_server.engine.truth import LIVE

MAX_NEIGHBOURS = 20_000
"""The number of neighbours requested from an index, however few of them pass a filter."""
OVERFETCH_FACTOR = 2
"""How many times the wanted number of neighbours is requested, because an index misses some."""
MIN_FOUND_FACTOR = 3
"""A search that finds less than the wanted number divided by this compares every vector of its scope."""
IS_READ = exists().where(conclusion_messages.c.conclusion_id == conclusions.c.id)
"""SQL condition: a conclusion comes from a message."""


def is_large(rows: int) -> bool:
    """Return True if a scope with this many rows should have an index."""
    return rows > EXACT_ROWS


def is_indexed(tx: Tx, scope: VectorScope) -> bool:
    """Return True if the database can find neighbours in a scope."""
    index = neighbour_index(tx)
    return index is not None and index.covers(tx, scope)


def queue_indexing(tx: Tx, scope: VectorScope, at: int) -> None:
    """Queue building a scope's index, unless it exists or is queued."""
    index = neighbour_index(tx)
    unit = f"index:{scope.kind}:{scope.id}"
    if index is None or index.covers(tx, scope):
        return
    if tx.execute(select(jobs.c.id).where(jobs.c.unit == unit, text(OPEN_JOB)).limit(1)).first() is None:
        add_job(tx, IndexingJob(scope.kind, scope.id), unit, at, 0)


class StoredSigns:
    """The stored vectors of a workspace's messages in one transaction, for an in-memory index without all signs."""

    def __init__(self, tx: Tx, workspace_id: int, index: NeighbourIndex) -> None:
        self._tx = tx
        self._index = index
        self._scope = VectorScope("messages", workspace_id)

    def fill(self, rows: OutlineRows, wanted: Positions) -> None:
        """Read the missing signs of these rows into the index."""
        assert rows.signed is not None
        missing = np.unique(rows.ids[wanted[~rows.signed[wanted]]])
        for part in in_parts(missing.tolist()):
            found = self._index.read(self._tx, self._scope, part)
            if not found:
                continue
            vectors = [row[2] for row in found]
            places = _places(rows, found)
            rows.signs[:, places] = signs_of(b"".join(vectors), len(vectors[0]) // 2)
            rows.signed[places] = True  # set last: a reader that sees True finds the signs
            check_reading()

    def nearest(self, rows: OutlineRows, vector: Vector, wanted: int, within: Positions | None) -> Positions:
        """Return approximately the nearest rows, in no particular order."""
        size = len(rows) if within is None else len(within)
        if not is_large(size) or not self._index.covers(self._tx, self._scope):
            return self._compare_all(rows, vector, wanted, within)
        inside = np.ones(len(rows), dtype=bool)
        if within is not None:
            inside[:] = False
            inside[within] = True
        asked = math.ceil(OVERFETCH_FACTOR * wanted * len(rows) / size)
        for most in _growing(asked):
            found = self._index.nearest(self._tx, self._scope, vector, most)
            places = _places(rows, found)
            places = places[inside[places]]
            if len(places) >= wanted or len(found) < most:
                break
        if len(places) * MIN_FOUND_FACTOR < min(wanted, size):
            return self._compare_all(rows, vector, wanted, within)
        places = places[: OVERFETCH_FACTOR * wanted]
        self.fill(rows, places)
        return rows.nearest_known(vector, wanted, np.sort(places))

    def _compare_all(self, rows: OutlineRows, vector: Vector, wanted: int, within: Positions | None) -> Positions:
        self.fill(rows, np.arange(len(rows)) if within is None else within)
        return rows.nearest_known(vector, wanted, within)


def _places(rows: OutlineRows, found: Sequence[Record]) -> Positions:
    """Return the row numbers of results that begin with (id, piece); results that are not in the index yet are left
    out.
    """
    ids = np.array([row[0] for row in found], dtype=np.int64)
    first = np.searchsorted(rows.ids, ids)
    first[first == len(rows)] = 0
    known = rows.ids[first] == ids
    places: Positions = first[known] + np.array([row[1] for row in found], dtype=np.int64)[known]
    return places


def near_conclusions(
    tx: Tx, scope: VectorScope, vector: Vector, limit: int, sessions: Collection[int] | None, *, read: bool
) -> Sequence[Record]:
    """Return rows (id, session, vector, is_read) that include the nearest conclusions, the oldest first. The scope
    must be indexed.
    """
    index = neighbour_index(tx)
    assert index is not None
    wanted = [LIVE, conclusions.c.collection_id == scope.id]
    if sessions is not None:
        wanted.append(conclusions.c.session_id.in_(sessions))
    if not read:
        wanted.append(~IS_READ)
    query = select(conclusions.c.id, conclusions.c.session_id, conclusions.c.vector, IS_READ).where(*wanted)
    query = query.order_by(conclusions.c.id)
    is_filtered = len(wanted) > 2
    if is_filtered:
        some = select(conclusions.c.id).where(*wanted).limit(EXACT_ROWS + 1).subquery()
        if not is_large(tx.execute(select(func.count()).select_from(some)).scalar_one()):
            return tx.execute(query).all()
    for most in _growing(OVERFETCH_FACTOR * limit):
        ids = [row[0] for row in index.nearest(tx, scope, vector, most)]
        rows = tx.execute(query.where(conclusions.c.id.in_(ids))).all()
        if len(rows) >= limit or len(ids) < most:
            break
    return rows


def _growing(first: int) -> Iterator[int]:
    """Yield the numbers of neighbours to request in turn."""
    asked = min(first, MAX_NEIGHBOURS)
    while asked < MAX_NEIGHBOURS:
        yield asked
        asked *= 8
    yield MAX_NEIGHBOURS
