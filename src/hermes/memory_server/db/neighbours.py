"""Finding the nearest of very many vectors in the database itself: what an index of vectors can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.embedder import Vector

EXACT_ROWS = 50_000
"""A scope of up to so many vectors is searched exactly: each is compared."""


@dataclass(frozen=True, slots=True)
class VectorScope:
    """Vectors that are searched together: the messages of a workspace, or the conclusions of a collection."""

    kind: Literal["messages", "conclusions"]
    id: int
    """Of the workspace or the collection."""


class NeighbourIndex(Protocol):
    """Indexes of the vectors of large scopes, one for each, which `Database.index_vectors` makes."""

    def covers(self, tx: Tx, scope: VectorScope) -> bool:
        """Return whether the scope has an index that can be used."""

    def nearest(self, tx: Tx, scope: VectorScope, vector: Vector, limit: int) -> Sequence[Record]:
        """Return (id, piece) of the nearest rows, nearly in order and nearly all; none where no index covers them."""

    def read(self, tx: Tx, scope: VectorScope, ids: Sequence[int]) -> Sequence[Record]:
        """Return (id, piece, vector) of these messages or conclusions."""
