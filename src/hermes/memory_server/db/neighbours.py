"""The interface of a vector index inside the database, for scopes with very many vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.embedder import Vector

EXACT_ROWS = 50_000
"""Scopes with fewer vectors are searched exactly, by comparing each."""


@dataclass(frozen=True, slots=True)
class VectorScope:
    """Vectors that are searched together: the messages of a workspace, or the conclusions of a collection."""

    kind: Literal["messages", "conclusions"]
    id: int
    """Id of the workspace or the collection."""


class NeighbourIndex(Protocol):
    """Vector indexes of large scopes, one for each, which `Database.index_vectors` builds."""

    def covers(self, tx: Tx, scope: VectorScope) -> bool:
        """Return True if the scope has a valid index."""

    def nearest(self, tx: Tx, scope: VectorScope, vector: Vector, limit: int) -> Sequence[Record]:
        """Return (id, piece) of the nearest rows, approximately; empty if no index covers the scope."""

    def read(self, tx: Tx, scope: VectorScope, ids: Sequence[int]) -> Sequence[Record]:
        """Return (id, piece, vector) of these messages or conclusions."""
