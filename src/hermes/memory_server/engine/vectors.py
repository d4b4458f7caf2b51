"""Stored vectors in memory, one matrix per place that is searched, filled from the tables as far as they have grown.

The tables are the truth: rows that other processes wrote are picked up by their ids, and when vectors disappeared
(the generation changed) a matrix is read again. Throwing one away costs time and nothing else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.patience import check_reading, holding
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import collections, conclusions
from hermes.memory_server.embedder import Vector, from_blobs
from hermes.memory_server.engine.outlines import Outlines

ROWS_KEPT = 1_500_000
"""How many vectors stay in memory over all matrices; the ones used longest ago go first."""
SMALLEST = 16
"""A matrix makes room for at least so many rows, and counts as so many more: an empty one takes memory too."""
BATCH = 1000
"""How many vectors are read from the tables at a time, so that reading takes little memory."""
BLOCK = 512
"""How many rows are widened and multiplied at a time: few enough to stay in the processor's cache."""
VectorHit = tuple[int, float]
"""The id of a row and how close it is, 1.0 being the same direction."""


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Where the vectors of one kind of place are read: (id, label, vector) after `last`, in the order of ids."""

    kind: str
    rows: PreparedStatement
    generation: PreparedStatement


COLLECTION = VectorSource(
    "collection",
    PreparedStatement(
        select(conclusions.c.id, conclusions.c.session_id, conclusions.c.vector)
        .where(conclusions.c.collection_id == bindparam("key"), conclusions.c.id > bindparam("last"))
        .where(conclusions.c.deleted_at.is_(None))
        .order_by(conclusions.c.id)
        .limit(BATCH)
    ),
    PreparedStatement(select(collections.c.generation).where(collections.c.id == bindparam("key"))),
)


@dataclass(frozen=True, slots=True)
class MatrixRows:
    """The rows of a matrix at one moment. More may be added behind them; these stay as they are."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]

    def nearest(self, vector: Vector, limit: int, labels: Collection[int] | None = None) -> list[VectorHit]:
        """The closest rows, or the closest with one of the labels, best first, each id once."""
        chosen = self if labels is None else self._labelled(labels)
        scores = chosen.multiply(vector)
        wanted = limit * 2
        while True:
            found = chosen._best(scores, min(wanted, len(scores)))
            if len(found) >= limit or wanted >= len(scores):
                return list(found.items())[:limit]
            wanted *= 4  # the pieces of a long text took the places of others

    def _best(self, scores: Vector, wanted: int) -> dict[int, float]:
        """The ids of so many rows, with the best score of each, best first."""
        best = np.argpartition(scores, -wanted)[-wanted:] if wanted < len(scores) else np.arange(len(scores))
        order = best[np.lexsort((-self.ids[best], -scores[best]))]
        found: dict[int, float] = {}
        for row_id, score in zip(self.ids[order].tolist(), scores[order].tolist(), strict=True):
            found.setdefault(row_id, score)
        return found

    def multiply(self, vector: Vector) -> Vector:
        """How close each row is."""
        scores = np.empty(len(self.ids), dtype=np.float32)
        wide = np.empty((BLOCK, self.vectors.shape[1]), dtype=np.float32)
        for start in range(0, len(scores), BLOCK):
            narrow = self.vectors[start : start + BLOCK]
            np.copyto(wide[: len(narrow)], narrow)
            np.matmul(wide[: len(narrow)], vector, out=scores[start : start + BLOCK])
        scores *= self.scales
        return scores

    def _labelled(self, labels: Collection[int]) -> MatrixRows:
        return self._take(np.flatnonzero(np.isin(self.labels, np.fromiter(labels, dtype=np.int64))))

    def _take(self, rows: NDArray[np.int64]) -> MatrixRows:
        return MatrixRows(self.ids[rows], self.labels[rows], self.vectors[rows], self.scales[rows])


class Matrix:
    """The vectors of one place, a row each, as whole numbers of eight bits with a scale."""

    def __init__(self, dimension: int) -> None:
        self.guard = threading.Lock()
        self.generation = -1
        self._dimension = dimension
        self.clear(-1)

    def clear(self, generation: int) -> None:
        """Forget all rows. A `MatrixRows` that was taken before stays as it is."""
        self.generation = generation
        self.last_id = self.count = 0
        self._ids = np.zeros(0, dtype=np.int64)
        self._labels = np.zeros(0, dtype=np.int64)
        self._vectors = np.zeros((0, self._dimension), dtype=np.int8)
        self._scales = np.zeros(0, dtype=np.float32)

    def add(self, rows: Sequence[Any]) -> None:
        """Append rows of (id, label, vector), which are newer than all before."""
        end = self.count + len(rows)
        self._make_room(end)
        new = slice(self.count, end)
        self._ids[new] = [row[0] for row in rows]
        self._labels[new] = [row[1] or 0 for row in rows]
        wide = from_blobs([row[2] for row in rows], self._dimension)
        scales = np.abs(wide).max(axis=1) / 127
        scales[scales == 0] = 1
        self._vectors[new] = np.rint(wide / scales[:, None])
        self._scales[new] = scales
        self.count = end
        self.last_id = int(rows[-1][0])

    def rows(self) -> MatrixRows:
        """What it holds now."""
        every = slice(self.count)
        return MatrixRows(self._ids[every], self._labels[every], self._vectors[every], self._scales[every])

    def _make_room(self, rows: int) -> None:
        if rows > len(self._ids):
            room = max(SMALLEST, rows + rows // 4)
            self._ids = _grown(self._ids, room)
            self._labels = _grown(self._labels, room)
            self._vectors = _grown(self._vectors, room)
            self._scales = _grown(self._scales, room)


def _grown(array: NDArray[Any], room: int) -> NDArray[Any]:
    grown = np.zeros((room, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


class VectorIndex:
    """The matrices of one process. Safe to use from several threads."""

    def __init__(self, dimension: int, rows_kept: int = ROWS_KEPT, *, folder: Path | None = None) -> None:
        self.outlines = Outlines(dimension, folder=folder)
        self._guard = threading.Lock()
        self._dimension = dimension
        self._rows_kept = rows_kept
        self._matrices: OrderedDict[tuple[str, int], Matrix] = OrderedDict()

    def nearest_conclusions(
        self, tx: Tx, collection_id: int, vector: Vector, limit: int, *, sessions: Collection[int] | None = None
    ) -> list[VectorHit]:
        """The closest conclusions of a collection, or of some sessions in it."""
        return self._rows(tx, COLLECTION, collection_id).nearest(vector, limit, sessions)

    def _rows(self, tx: Tx, source: VectorSource, key: int) -> MatrixRows:
        matrix = self._matrix(source.kind, key)
        with holding(matrix.guard):
            _follow(tx, matrix, source, {"key": key})
            return matrix.rows()

    def _matrix(self, kind: str, key: int) -> Matrix:
        with self._guard:
            known = self._matrices.get((kind, key))
            if known is not None:
                self._matrices.move_to_end((kind, key))
                return known
            while self._matrices and sum(SMALLEST + m.count for m in self._matrices.values()) > self._rows_kept:
                self._matrices.popitem(last=False)
            return self._matrices.setdefault((kind, key), Matrix(self._dimension))


def _follow(tx: Tx, matrix: Matrix, source: VectorSource, place: dict[str, int]) -> None:
    """Read what the tables have beyond the matrix, or everything again when something disappeared."""
    [(generation,)] = source.generation.rows(tx, **place)
    if generation < matrix.generation:
        return  # an older snapshot still has what left: it takes what there is, and adds nothing
    if matrix.generation < generation:
        matrix.clear(generation)
    while rows := source.rows.rows(tx, last=matrix.last_id, **place):
        if len(rows) == BATCH and rows[0][0] != rows[-1][0]:
            # The last message may have more pieces: it comes whole with the next batch.
            rows = [row for row in rows if row[0] != rows[-1][0]]
        matrix.add(rows)
        check_reading()
