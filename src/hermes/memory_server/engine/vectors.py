"""Stored vectors in memory, one matrix per workspace or collection, filled from the tables as far as they have grown.

The tables are the truth: rows that other processes wrote are picked up by their ids, and when vectors disappeared
(the generation changed) a matrix is read again. Throwing one away costs time and nothing else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, bindparam, select

from hermes.memory_server.db.engine import Tx
from hermes.memory_server.db.tables import collections, conclusions, message_vectors, workspaces
from hermes.memory_server.engine.embed import DIMENSIONS, Vector, from_blobs

ROWS_KEPT = 1_500_000
"""How many vectors stay in memory over all matrices; the ones used longest ago go first."""
BATCH = 5000
Hit = tuple[int, float]
"""The id of a row and how close it is, 1.0 being the same direction."""
WORKSPACE_GENERATION = select(workspaces.c.generation).where(workspaces.c.id == bindparam("key"))
COLLECTION_GENERATION = select(collections.c.generation).where(collections.c.id == bindparam("key"))
MESSAGE_ROWS = (
    select(
        message_vectors.c.message_id,
        message_vectors.c.session_id,
        message_vectors.c.peer_id,
        message_vectors.c.vector,
    )
    .where(message_vectors.c.workspace_id == bindparam("key"), message_vectors.c.message_id > bindparam("last"))
    .order_by(message_vectors.c.message_id, message_vectors.c.piece)
    .limit(BATCH)
)
CONCLUSION_ROWS = (
    select(conclusions.c.id, conclusions.c.session_id, conclusions.c.collection_id, conclusions.c.vector)
    .where(conclusions.c.collection_id == bindparam("key"), conclusions.c.id > bindparam("last"))
    .where(conclusions.c.deleted_at.is_(None))
    .order_by(conclusions.c.id)
    .limit(BATCH)
)


class Matrix:
    """The vectors of one place, a row each, with the session and peer of each."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.generation = -1
        self.last_id = 0
        self.count = 0
        self._ids = np.zeros(0, dtype=np.int64)
        self._sessions = np.zeros(0, dtype=np.int64)
        self._peers = np.zeros(0, dtype=np.int64)
        self._vectors = np.zeros((0, DIMENSIONS), dtype=np.float32)

    def clear(self, generation: int) -> None:
        """Forget all rows."""
        self.generation = generation
        self.last_id = self.count = 0

    def add(self, rows: list[Any]) -> None:
        """Append rows of (id, session, peer, vector), which are newer than all before."""
        end = self.count + len(rows)
        self._make_room(end)
        self._ids[self.count : end] = [row[0] for row in rows]
        self._sessions[self.count : end] = [row[1] or 0 for row in rows]
        self._peers[self.count : end] = [row[2] or 0 for row in rows]
        self._vectors[self.count : end] = from_blobs([row[3] for row in rows])
        self.count = end
        self.last_id = int(rows[-1][0])

    def nearest(
        self, vector: Vector, limit: int, *, sessions: Iterable[int] | None = None, peer: int | None = None
    ) -> list[Hit]:
        """The closest rows, best first, each id once."""
        count = self.count
        chosen = self._choose(count, sessions, peer)
        scores = self._vectors[:count] @ vector if chosen is None else self._vectors[chosen] @ vector
        ids = self._ids[:count] if chosen is None else self._ids[chosen]
        wanted = min(limit * 2, len(scores))
        best = np.argpartition(-scores, wanted - 1)[:wanted] if wanted < len(scores) else np.arange(len(scores))
        ordered = best[np.lexsort((-ids[best], -scores[best]))]
        found: dict[int, float] = {}
        for row in ordered:
            found.setdefault(int(ids[row]), float(scores[row]))
        return list(found.items())[:limit]

    def _choose(self, count: int, sessions: Iterable[int] | None, peer: int | None) -> NDArray[np.int64] | None:
        if sessions is None and peer is None:
            return None
        mask = np.ones(count, dtype=bool)
        if sessions is not None:
            mask &= np.isin(self._sessions[:count], np.fromiter(sessions, dtype=np.int64))
        if peer is not None:
            mask &= self._peers[:count] == peer
        return np.flatnonzero(mask)

    def _make_room(self, rows: int) -> None:
        if rows <= len(self._ids):
            return
        room = max(64, rows + rows // 4)
        self._ids = np.resize(self._ids, room)
        self._sessions = np.resize(self._sessions, room)
        self._peers = np.resize(self._peers, room)
        grown = np.empty((room, DIMENSIONS), dtype=np.float32)
        grown[: self.count] = self._vectors[: self.count]
        self._vectors = grown


class VectorIndex:
    """The matrices of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._matrices: OrderedDict[tuple[str, int], Matrix] = OrderedDict()

    def nearest_messages(
        self,
        tx: Tx,
        workspace_id: int,
        vector: Vector,
        limit: int,
        *,
        sessions: Iterable[int] | None = None,
        peer: int | None = None,
    ) -> list[Hit]:
        """The closest messages of a workspace, or of some sessions or one author in it."""
        matrix = self._matrix("messages", workspace_id)
        with matrix.guard:
            _follow(tx, matrix, workspace_id, WORKSPACE_GENERATION, MESSAGE_ROWS)
            return matrix.nearest(vector, limit, sessions=sessions, peer=peer)

    def nearest_conclusions(
        self, tx: Tx, collection_id: int, vector: Vector, limit: int, *, sessions: Iterable[int] | None = None
    ) -> list[Hit]:
        """The closest conclusions of a collection, or of some sessions in it."""
        matrix = self._matrix("conclusions", collection_id)
        with matrix.guard:
            _follow(tx, matrix, collection_id, COLLECTION_GENERATION, CONCLUSION_ROWS)
            return matrix.nearest(vector, limit, sessions=sessions)

    def _matrix(self, kind: str, key: int) -> Matrix:
        with self._guard:
            matrix = self._matrices.setdefault((kind, key), Matrix())
            self._matrices.move_to_end((kind, key))
            while len(self._matrices) > 1 and sum(m.count for m in self._matrices.values()) > ROWS_KEPT:
                self._matrices.popitem(last=False)
            return matrix


def _follow(tx: Tx, matrix: Matrix, key: int, generation_of: Select[Any], rows_after: Select[Any]) -> None:
    """Read what the tables have beyond the matrix, or everything again when something disappeared."""
    generation = tx.execute(generation_of, {"key": key}).scalar_one()
    if matrix.generation < generation:
        matrix.clear(generation)
    while rows := list(tx.execute(rows_after, {"key": key, "last": matrix.last_id})):
        if len(rows) == BATCH and rows[0][0] != rows[-1][0]:
            # The last message may have more pieces: it comes whole with the next batch.
            rows = [row for row in rows if row[0] != rows[-1][0]]
        matrix.add(rows)
