"""Texts as vectors: what an embedder is, and how its vectors are stored. Whoever starts us chooses one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
PIECE_CHARS = 900
"""A long text is embedded in pieces: one vector for all of it says nothing."""


@dataclass(frozen=True, slots=True)
class Space:
    """What vectors are made by. Only vectors of one space can be compared, so a folder holds those of one."""

    embedder: str
    dimension: int

    def __str__(self) -> str:
        return f"{self.embedder} ({self.dimension} numbers)"


SHIPPED = Space("wordllama/l2_supercat_256", 256)
"""Of the vectors that come with us and need no other service."""


class TextRefusedError(Exception):
    """An embedder does not take these texts; fewer or shorter ones it may."""


class Embedder(Protocol):
    """Turns texts into vectors of one space."""

    @property
    def space(self) -> Space:
        """What its vectors can be compared with."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """The direction of each text, of length 1, or all zeros for one without words.

        It may take long and may raise, so it is never called inside a transaction. A TextRefusedError says that the
        same texts would be refused again; after any other failure they may be taken.
        """


@dataclass(frozen=True, slots=True)
class Finer:
    """The direction of a question in the space of a second embedder, and the name of that space."""

    space: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """What is looked for: its words and its direction."""

    text: str
    vector: Vector
    direction: Callable[[str], Vector] | None = None
    """How a shorter text is embedded where that takes no time at all: embedders that can have this method."""
    finer: Finer | None = None
    """Of the question without the names of peers."""


def split_pieces(text: str) -> list[str]:
    """Pieces of at most PIECE_CHARS, cut at spaces where there are any."""
    pieces: list[str] = []
    rest = text
    while len(rest) > PIECE_CHARS:
        cut = rest.rfind(" ", PIECE_CHARS // 2, PIECE_CHARS)
        cut = cut if cut > 0 else PIECE_CHARS
        pieces.append(rest[:cut])
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest or not pieces else pieces


def in_parts(texts: Iterable[str], chars: int) -> Iterator[list[str]]:
    """The texts in order, in parts of at most so many characters; a longer text is a part of its own."""
    part: list[str] = []
    for text in texts:
        if part and sum(map(len, part)) + len(text) > chars:
            yield part
            part = []
        part.append(text)
    if part:
        yield part


def to_blob(vector: Vector) -> bytes:
    """A vector as the tables hold it: half floats."""
    return vector.astype(np.float16).tobytes()


def from_blobs(blobs: Iterable[bytes], dimension: int) -> Vector:
    """Stored vectors as one matrix, a row each."""
    flat = np.frombuffer(b"".join(blobs), dtype=np.float16)
    return flat.reshape(-1, dimension).astype(np.float32)
