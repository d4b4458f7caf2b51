"""Embedders, which turn texts into vectors, and how vectors are stored. The caller that starts the server chooses
one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
PIECE_CHARS = 900
"""Length of the pieces in which a long text is embedded: a single vector for all of it finds little."""


@dataclass(frozen=True, slots=True)
class Space:
    """The vector space of an embedder. Only vectors of one space can be compared, so a folder holds vectors of one."""

    embedder: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.embedder} ({self.dimension} numbers)"


SHIPPED = Space("wordllama/l2_supercat_256", 256)
"""Space of the bundled word vectors, which need no other service."""


class TextRefusedError(Exception):
    """The embedder does not accept these texts; fewer or shorter texts may be accepted."""


class Embedder(Protocol):
    """Turn texts into vectors of one space."""

    @property
    def space(self) -> Space:
        """Space of the vectors that this embedder returns."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text, of length 1, or all zeros for a text without words.

        It may take long and may raise, so it is never called inside a transaction. A TextRefusedError says that the
        same texts would be refused again; after any other failure they may be taken.
        """


@dataclass(frozen=True, slots=True)
class Finer:
    """Vector of a question from a second embedder, with the name of its space."""

    space: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A search query: its text and its vector."""

    text: str
    vector: Vector
    direction: Callable[[str], Vector] | None = None
    """Embed a shorter text immediately; None for embedders that have no such method."""
    finer: Finer | None = None
    """Vector from the second embedder, of the question without the names of peers."""


def split_pieces(text: str) -> list[str]:
    """Split a text into pieces of at most PIECE_CHARS, at spaces where possible."""
    pieces: list[str] = []
    rest = text
    while len(rest) > PIECE_CHARS:
        cut = rest.rfind(" ", PIECE_CHARS // 2, PIECE_CHARS)
        cut = cut if cut > 0 else PIECE_CHARS
        pieces.append(rest[:cut])
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def in_parts(texts: Iterable[str], chars: int) -> Iterator[list[str]]:
    """Yield the texts in order, in batches of at most `chars` characters; a longer text forms a batch alone."""
    part: list[str] = []
    for text in texts:
        if part and sum(map(len, part)) + len(text) > chars:
            yield part
            part = []
        part.append(text)
    if part:
        yield part


def to_blob(vector: Vector) -> bytes:
    """Encode a vector as the tables store it, in half floats."""
    return vector.astype(np.float16).tobytes()


def from_blobs(blobs: Iterable[bytes], dimension: int) -> Vector:
    """Decode stored vectors into a matrix with one row for each."""
    flat = np.frombuffer(b"".join(blobs), dtype=np.float16)
    return flat.reshape(-1, dimension).astype(np.float32)
