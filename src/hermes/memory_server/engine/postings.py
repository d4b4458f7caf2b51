"""Which rows of an outline hold a word: read from the text index once, and from then on only what is new."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.text_index import Match
from hermes.memory_server.engine.outline import OutlineRows

HOLDERS = 3000
"""Of each word so many of its newest holders count."""
WHOLE = 30_000
"""In a workspace with up to so many rows all holders of a word are kept, so that it is known who holds several."""
KEPT = 500_000
"""How many rows are kept over all words of a workspace; the words asked for longest ago go first."""
SMALLEST = 64
"""Each word counts as so many rows more, since one that nobody uses takes memory too."""


@dataclass(frozen=True, slots=True)
class Posting:
    """The newest rows that hold a word, in order, as far as a message."""

    rows: NDArray[np.int32]
    upto: int
    is_complete: bool
    """Are there no others?"""

    def among(self, rows: OutlineRows) -> NDArray[np.int32]:
        """Those of these rows; others may have found newer ones."""
        return self.rows[: self.rows.searchsorted(len(rows))]

    @property
    def size(self) -> int:
        """What it takes of memory, counted in rows."""
        return len(self.rows) + SMALLEST


class Postings:
    """The words of one workspace that were asked for, as long as no rows are left out of its outline. Safe to use from
    several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[str, Posting] = OrderedDict()
        self._size = 0

    def known(self, word: str) -> Posting | None:
        """What was read before, if anything."""
        with self._guard:
            return self._known.get(word)

    def read(self, match: Match, rows: OutlineRows, word: str, newest: int) -> Posting:
        """Which of the rows hold a word, up to the newest message that the transaction of `match` sees, or newer."""
        known = self.known(word)
        most = WHOLE if len(rows) <= WHOLE else HOLDERS
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
        """The same words for rows that are elsewhere now, or nowhere (below 0). Where not all rows of a word are known,
        others may take the place of those that left: it is read again."""
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
        while self._size > KEPT:
            _, gone = self._known.popitem(last=False)
            self._size -= gone.size


def _cut(rows: NDArray[np.int32], upto: int, *, is_complete: bool) -> Posting:
    is_complete = is_complete and len(rows) < WHOLE
    return Posting(rows if is_complete else rows[-HOLDERS:].copy(), upto, is_complete)


def _rows(rows: OutlineRows, ids: NDArray[np.int64]) -> NDArray[np.int32]:
    return rows.first(ids[::-1]).astype(np.int32)
