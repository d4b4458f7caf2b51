"""In-memory vectors of conclusions, one matrix per collection, updated from the tables as these grow.

The tables are the source of truth: rows that other processes wrote are added by id, and a matrix is read again when
rows disappeared (the generation changed). A matrix can be discarded and rebuilt at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.db.scheduling import check_reading, holding
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import collections, conclusions
from hermes.memory_server.embedder import Vector, from_blobs
from hermes.memory_server.engine.memory_indexes import MemoryIndexes
from hermes.memory_server.engine.near_vectors import IS_READ, is_indexed, is_large, near_conclusions
from hermes.memory_server.engine.truth import LIVE

MAX_ROWS_KEPT = 1_500_000
"""The number of vectors in memory over all matrices; those used longest ago are dropped first."""
MIN_MATRIX_ROWS = 16
"""The smallest capacity of a matrix, also added to its size, because an empty one takes memory too."""
VECTOR_BATCH_ROWS = 1000
"""The number of vectors read from the tables at a time, so that reading takes little memory."""
BLOCK_ROWS = 512
"""The number of rows converted and multiplied at a time, which fit the processor's cache."""
VectorHit = tuple[int, float]
"""A row id and its closeness; 1.0 is the same direction."""
NEWER = PreparedStatement(
    select(
        *(conclusions.c[name] for name in ("id", "session_id", "vector")),
        IS_READ.label("is_read"),
    )
    .where(conclusions.c.collection_id == bindparam("collection_id"), conclusions.c.id > bindparam("last"))
    .where(LIVE)
    .order_by(conclusions.c.id)
    .limit(VECTOR_BATCH_ROWS)
)
GENERATION = PreparedStatement(select(collections.c.generation).where(collections.c.id == bindparam("collection_id")))


@dataclass(frozen=True, slots=True)
class MatrixRows:
    """A snapshot of a matrix's rows. Rows added later do not change it."""

    ids: NDArray[np.int64]
    sessions: NDArray[np.int64]
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]
    read: NDArray[np.bool_]
    """True for conclusions that come from a message."""

    def nearest(self, vector: Vector, limit: int) -> list[VectorHit]:
        """Return the closest rows, the best first; among equals the newest."""
        scores = self.multiply(vector)
        some = np.arange(len(scores))
        if 2 * limit < len(scores):
            some = np.argpartition(scores, -2 * limit)[-2 * limit :]
        best = some[np.lexsort((-self.ids[some], -scores[some]))[:limit]]
        return list(zip(self.ids[best].tolist(), scores[best].tolist(), strict=True))

    def multiply(self, vector: Vector) -> Vector:
        """Return the closeness of each row."""
        scores = np.empty(len(self.ids), dtype=np.float32)
        wide = np.empty((BLOCK_ROWS, self.vectors.shape[1]), dtype=np.float32)
        for start in range(0, len(scores), BLOCK_ROWS):
            narrow = self.vectors[start : start + BLOCK_ROWS]
            np.copyto(wide[: len(narrow)], narrow)
            np.matmul(wide[: len(narrow)], vector, out=scores[start : start + BLOCK_ROWS])
        scores *= self.scales
        return scores

    def take(self, rows: slice | NDArray[np.int64]) -> MatrixRows:
        return MatrixRows(*(getattr(self, each.name)[rows] for each in fields(self)))


class Matrix:
    """The vectors of one collection, one row each, as 8-bit integers with a scale."""

    def __init__(self, dimension: int) -> None:
        self.guard = threading.Lock()
        self._dimension = dimension
        self.clear(-1)

    def clear(self, generation: int) -> None:
        """Remove all rows. An earlier `MatrixRows` does not change."""
        self.generation = generation
        self.last_id = self.count = 0
        self._kept = _empty(self._dimension, 0)

    def add(self, rows: Sequence[Any]) -> None:
        """Append rows of (id, session, vector, is_read), newer than all present ones."""
        end = self.count + len(rows)
        if end > len(self._kept.ids):
            self._kept = _grown(self._kept, max(MIN_MATRIX_ROWS, end + end // 4))
        kept, new = self._kept, slice(self.count, end)
        kept.ids[new] = [row[0] for row in rows]
        kept.sessions[new] = [row[1] or 0 for row in rows]
        wide = from_blobs([row[2] for row in rows], self._dimension)
        scales = np.abs(wide).max(axis=1) / 127
        scales[scales == 0] = 1
        kept.vectors[new] = np.rint(wide / scales[:, None])
        kept.scales[new] = scales
        kept.read[new] = [bool(row[3]) for row in rows]
        self.count = end
        self.last_id = int(rows[-1][0])

    def rows(self) -> MatrixRows:
        """Return a snapshot of the current rows."""
        return self._kept.take(slice(self.count))


def _empty(dimension: int, room: int) -> MatrixRows:
    vectors, scales = np.zeros((room, dimension), dtype=np.int8), np.zeros(room, dtype=np.float32)
    ids, sessions = np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64)
    return MatrixRows(ids, sessions, vectors, scales, np.zeros(room, dtype=np.bool_))


def _grown(rows: MatrixRows, room: int) -> MatrixRows:
    grown = _empty(rows.vectors.shape[1], room)
    for each in fields(rows):
        getattr(grown, each.name)[: len(rows.ids)] = getattr(rows, each.name)
    return grown


class VectorIndex:
    """The matrices of one process. Thread-safe."""

    def __init__(self, dimension: int, rows_kept: int = MAX_ROWS_KEPT, *, folder: Path | None = None) -> None:
        self.memory_indexes = MemoryIndexes(dimension, folder=folder)
        self._guard = threading.Lock()
        self._dimension = dimension
        self._rows_kept = rows_kept
        self._matrices: OrderedDict[int, Matrix] = OrderedDict()

    def nearest_conclusions(
        self,
        tx: Tx,
        collection_id: int,
        vector: Vector,
        limit: int,
        *,
        sessions: Collection[int] | None = None,
        read: bool = True,
    ) -> list[VectorHit]:
        """Return the closest conclusions of a collection, or of some sessions in it. Without `read`, conclusions that
        come from messages are left out.
        """
        scope = VectorScope("conclusions", collection_id)
        if collection_id not in self._matrices and is_indexed(tx, scope):
            matrix = Matrix(self._dimension)
            if found := near_conclusions(tx, scope, vector, limit, sessions, read=read):
                matrix.add(found)
            return matrix.rows().nearest(vector, limit)
        matrix = self._matrix(collection_id)
        with holding(matrix.guard):
            _follow(tx, matrix, collection_id)
            rows = matrix.rows()
        if is_large(len(rows.ids)):
            self.memory_indexes.index_later(scope)
        if not read:
            rows = rows.take(np.flatnonzero(~rows.read))
        if sessions is not None:
            rows = rows.take(np.flatnonzero(np.isin(rows.sessions, np.fromiter(sessions, dtype=np.int64))))
        return rows.nearest(vector, limit) if len(rows.ids) else []

    def _matrix(self, collection_id: int) -> Matrix:
        with self._guard:
            known = self._matrices.get(collection_id)
            if known is not None:
                self._matrices.move_to_end(collection_id)
                return known
            while self._matrices and sum(MIN_MATRIX_ROWS + m.count for m in self._matrices.values()) > self._rows_kept:
                self._matrices.popitem(last=False)
            return self._matrices.setdefault(collection_id, Matrix(self._dimension))


def _follow(tx: Tx, matrix: Matrix, collection_id: int) -> None:
    """Read the rows that are newer than the matrix, or all rows again if some disappeared."""
    [(generation,)] = GENERATION.rows(tx, collection_id=collection_id)
    if generation < matrix.generation:
        return  # an older snapshot still sees dropped rows: it uses the matrix and adds nothing
    if matrix.generation < generation:
        matrix.clear(generation)
    while rows := NEWER.rows(tx, collection_id=collection_id, last=matrix.last_id):
        matrix.add(rows)
        check_reading()
