"""Postings: which rows of an index hold a word. Read once from the text index, and later only for new rows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.text_index import Match
from hermes.memory_server.engine.memory_index import OutlineRows

MAX_NEWEST_ROWS = 3000
"""The number of newest rows that count for each word."""
MAX_COMPLETE_ROWS = 30_000
"""In a workspace with up to this many rows, all rows of a word are kept, so that combinations of words are exact."""
MAX_ROWS_KEPT = 500_000
"""The number of rows kept over all words of a workspace; the words used longest ago are dropped first."""
ROWS_PER_WORD = 64
"""The number of rows added to the size of each word, because a word that nobody uses takes memory too."""


@dataclass(frozen=True, slots=True)
class Posting:
    """The newest rows that hold a word, in order, up to a message."""

    rows: NDArray[np.int32]
    upto: int
    is_complete: bool
    """True if no other rows hold the word."""

    def among(self, rows: OutlineRows) -> NDArray[np.int32]:
        """Return the rows of this posting that are within `rows`; a concurrent search may have added newer ones."""
        return self.rows[: self.rows.searchsorted(len(rows))]

    @property
    def size(self) -> int:
        """The memory that it takes, counted in rows."""
        return len(self.rows) + ROWS_PER_WORD


class Postings:
    """The postings of one workspace's words, valid until rows of its in-memory index are dropped. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[str, Posting] = OrderedDict()
        self._size = 0

    def known(self, word: str) -> Posting | None:
        """Return the posting that was read before, or None."""
        with self._guard:
            return self._known.get(word)

    def read(self, match: Match, rows: OutlineRows, word: str, newest: int) -> Posting:
        """Return the rows that hold a word, up to the newest message that the transaction of `match` sees, or newer."""
        known = self.known(word)
        most = MAX_COMPLETE_ROWS if len(rows) <= MAX_COMPLETE_ROWS else MAX_NEWEST_ROWS
        if known is None or (newest < known.upto and not known.is_complete):
            all_ = _rows(rows, match([word], most, None))
            found = _cut(all_, newest, is_complete=len(all_) < most)
        elif known.upto < newest:
            more = _rows(rows, match([word], most, (known.upto + 1, newest)))
            is_complete = known.is_complete and len(more) < most
            found = _cut(np.concatenate([known.rows, more]), newest, is_complete=is_complete)
        else:
            found = known
        with self._guard:
            self._keep(word, found)
        return found

    def moved(self, places: NDArray[np.int32]) -> Postings:
        """Return the postings for renumbered rows; a number below 0 means dropped. Words of which not all rows are
        known are left out and read again, because other rows may replace dropped ones.
        """
        with self._guard:
            known = list(self._known.items())
        moved = Postings()
        for word, posting in known:
            if posting.is_complete:
                rows = places[posting.rows]
                moved._keep(word, Posting(rows[rows >= 0], posting.upto, is_complete=True))
        return moved

    def _keep(self, word: str, posting: Posting) -> None:
        old = self._known.pop(word, None)
        self._size += posting.size - (0 if old is None else old.size)
        self._known[word] = posting
        while self._size > MAX_ROWS_KEPT:
            _, gone = self._known.popitem(last=False)
            self._size -= gone.size


def _cut(rows: NDArray[np.int32], upto: int, *, is_complete: bool) -> Posting:
    is_complete = is_complete and len(rows) < MAX_COMPLETE_ROWS
    return Posting(rows if is_complete else rows[-MAX_NEWEST_ROWS:].copy(), upto, is_complete)


def _rows(rows: OutlineRows, ids: NDArray[np.int64]) -> NDArray[np.int32]:
    return rows.first(ids[::-1]).astype(np.int32)
