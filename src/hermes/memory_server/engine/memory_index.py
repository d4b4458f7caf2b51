"""The in-memory index of a workspace's messages. It has the author, session and day of each message, its
neighbours in the session, and the signs of its vectors, in 68 bytes, so that a million messages fit.

The tables are the source of truth. Rows that other processes wrote are added by id, and rows that disappeared (the
generation changed) are dropped. An in-memory index can be discarded and rebuilt at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.scheduling import check_reading
from hermes.memory_server.db.text_index import MessageIds
from hermes.memory_server.embedder import Vector
from hermes.ranking.dates import MICROSECONDS_PER_DAY
from hermes.ranking.scoring import Flags

Whole32 = NDArray[np.int32]
Positions = NDArray[np.signedinteger[Any]]
"""Row numbers."""
Signs = NDArray[np.uint64]
NONE = -1
"""The row number that stands for no message."""
BLOCK_ROWS = 32768
"""The number of rows compared at a time, which fit the processor's cache."""
BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little").astype(np.float32)
"""The bits of each byte, the lowest first; one line per bit."""
MAGNITUDE_WIDTH = 15
"""The width of a half float without its sign bit."""


class SignSource(Protocol):
    """A source of signs that the in-memory index does not hold, within one transaction."""

    def fill(self, rows: OutlineRows, wanted: Positions) -> None:
        """Read the missing signs of these rows into `rows.signs`, and mark them in `signed`."""

    def nearest(self, rows: OutlineRows, vector: Vector, wanted: int, within: Positions | None) -> Positions:
        """Like `OutlineRows.nearest`; the result may be approximate."""


@dataclass(frozen=True, slots=True)
class OutlineRows:
    """A snapshot of rows, ordered by id: one row for each piece of a message."""

    ids: MessageIds
    sessions: Whole32
    peers: Whole32
    days: Whole32
    traits: Whole32
    before: Whole32
    """The last row of the preceding message of the session, or NONE."""
    after: Whole32
    """For the last row of a message: the first row of the next message of the session, or NONE. It may point to a row
    that was added after the snapshot.
    """
    numbers: Whole32
    """The number of the message in its session, from 1."""
    signs: Signs
    """The signs of the vectors, 64 in each number; one line per 64 dimensions."""
    is_dense: bool = field(default=False, kw_only=True)
    """True if the ids are consecutive, one row each, so that a row is found by subtraction."""
    signed: Flags | None = field(default=None, kw_only=True)
    """Which rows have their signs here; None for all."""
    source: SignSource | None = field(default=None, kw_only=True)
    """The source of the other rows' signs."""

    def __len__(self) -> int:
        return len(self.ids)

    def last(self, rows: Positions) -> Positions:
        """Return the last row of the message that each row belongs to."""
        if not len(self.ids) or self.is_dense:
            return rows
        return np.searchsorted(self.ids, self.ids[rows], side="right") - 1

    def first(self, ids: MessageIds) -> Positions:
        """Return the first row of each of these messages; unknown messages are left out."""
        if not len(self.ids):
            return np.zeros(0, dtype=np.int64)
        if self.is_dense:
            rows: Positions = ids - self.ids[0]
            known: Flags = (rows >= 0) & (rows < len(self.ids))
        else:
            rows = np.searchsorted(self.ids, ids)
            rows[rows == len(self.ids)] = 0
            known = self.ids[rows] == ids
        return rows if known.all() else rows[known]

    def begin(self, rows: Positions) -> Positions:
        """Return the first row of the message that each row belongs to."""
        return rows if self.is_dense else self.first(self.ids[rows])

    def nearest(self, vector: Vector, wanted: int, within: Positions | None = None) -> Positions:
        """Return the rows whose signs agree most with the vector's, in no particular order; among equals the newest."""
        if self.source is not None:
            return self.source.nearest(self, vector, wanted, within)
        return self.nearest_known(vector, wanted, within)

    def nearest_known(self, vector: Vector, wanted: int, within: Positions | None = None) -> Positions:
        """Like `nearest`, using only the signs that are here."""
        signs = self.signs if within is None else self.signs[:, within]
        found = _closest(_disagreement(signs, _packed(np.signbit(vector)[None])), wanted)
        return found if within is None else within[found]

    def lines(self, rows: Positions) -> Signs:
        """Return the signs of rows, one line per row."""
        if self.source is not None:
            self.source.fill(self, rows)
        # Taken one by one: the array has spare room, and fancy indexing of a slice would copy it whole.
        return np.array([signs.take(rows) for signs in self.signs]).T

    def closeness(self, rows: Positions, vector: Vector) -> Vector:
        """Return the approximate closeness of rows to a vector, by their signs: 1.0 is the same direction."""
        packed = self.lines(rows).copy().view(np.uint8)
        wide = np.zeros(packed.shape[1] * 8, dtype=np.float32)
        wide[: len(vector)] = vector
        negative = byte_sums(wide.reshape(-1, 8)[:, ::-1].ravel()).ravel()  # the signs of a byte begin at its last bit
        width = packed.shape[1]
        found = negative.take(packed + np.arange(0, width * 256, 256)) @ np.ones(width, dtype=np.float32)
        close: Vector = (vector.sum() - 2 * found) / np.float32(len(vector) ** 0.5)
        return close


ARRAYS = tuple(each.name for each in fields(OutlineRows) if not each.kw_only)
"""The names of the arrays that rows consist of."""


class MemoryIndex:
    """The growing index of one workspace."""

    def __init__(self, dimension: int) -> None:
        self.guard = threading.Lock()
        self.is_whole = False
        """True once it was read to the end of the table."""
        self.generation = NONE
        self.last_id = self.count = 0
        self.on_disk = 0
        """The number of rows in its file."""
        self.saved_at = float("-inf")
        """The time at which the file was written, by the monotonic clock."""
        self._dimension = dimension
        self._kept = _empty(dimension)
        self.is_lean = False
        """True if signs stay in the database until a search needs them."""
        self.ends: dict[int, int] = {}
        """The last row of each session: updated as rows are added, replaced by a new dict when rows are dropped."""
        self._one_each = True
        """True if each message has one row."""
        self._rows: OutlineRows | None = None
        """The cached result of `rows()`."""

    def add(self, rows: Sequence[Any]) -> None:
        """Append rows of (id, session, author, date, traits, vector), newer than all present ones. Rows of a lean
        in-memory index have no vector.
        """
        start, end = self.count, self.count + len(rows)
        if end > len(self._kept.ids):
            self._kept = _grown(self._kept, max(16, end + end // 8))
        kept, new = self._kept, slice(start, end)
        ids, sessions, peers, dates, traits, *blobs = zip(*rows, strict=True)
        kept.ids[new] = ids
        kept.sessions[new] = sessions
        kept.peers[new] = peers
        kept.days[new] = np.array(dates, dtype=np.int64) // MICROSECONDS_PER_DAY
        kept.traits[new] = traits
        for vectors in blobs:
            kept.signs[:, new] = signs_of(b"".join(vectors), self._dimension)
        self._link(start, ids, sessions)
        self.count, self.last_id, self._rows = end, int(ids[-1]), None

    def _link(self, start: int, ids: Sequence[int], sessions: Sequence[int]) -> None:
        ends, kept = self.ends, self._kept
        befores: list[int] = []
        numbers: list[int] = []
        last_id = self.last_id if start else NONE
        for row, (message, session) in enumerate(zip(ids, sessions, strict=True), start):
            end = ends.get(session, NONE)
            if message == last_id:  # another piece of the same message
                befores.append(befores[-1])
                numbers.append(numbers[-1])
                self._one_each = False
            else:
                befores.append(end)
                numbers.append(1 if end == NONE else 1 + (numbers[end - start] if end >= start else kept.numbers[end]))
                if end != NONE:
                    kept.after[end] = row
            ends[session] = row
            last_id = message
        new = slice(start, start + len(ids))
        kept.before[new] = befores
        kept.numbers[new] = numbers

    def make_lean(self) -> None:
        """Leave the signs of all rows in the database. The in-memory index must be empty."""
        self.is_lean = True
        self._kept, self._rows = replace(self._kept, signed=np.zeros(len(self._kept), dtype=bool)), None

    def keep(self, authors: Mapping[int, int]) -> None:
        """Keep only the rows of these messages, with these authors. Earlier results of `rows()` do not change."""
        ids = self.rows().ids
        self.leave_out(ids[~np.isin(ids, np.fromiter(authors, dtype=np.int64))])
        peers = self._kept.peers.copy()
        peers[: self.count] = [authors[message] for message in self.rows().ids.tolist()]
        self._kept, self._rows = replace(self._kept, peers=peers), None

    def leave_out(self, ids: MessageIds) -> Whole32:
        """Drop the rows of some messages. Return the new number of each old row, or NONE. Earlier results of `rows()`
        do not change.
        """
        rows = self.rows()
        stays = ~np.isin(rows.ids, ids)
        places = np.where(stays, np.cumsum(stays) - 1, NONE).astype(np.int32)
        if stays.all():
            return places
        before = _nearest_left(rows.before, stays)[stays]
        kept = _taken(rows, np.flatnonzero(stays))
        kept.before[:] = np.where(before == NONE, NONE, places[before])
        is_first = np.diff(kept.ids, prepend=NONE) != 0
        follows = np.flatnonzero(is_first & (kept.before != NONE))
        kept.after[:] = NONE
        kept.after[kept.before[follows]] = follows
        touched = np.unique(rows.sessions[~stays])
        self.ends = {session: int(places[row]) for session, row in self.ends.items()}
        for session in touched.tolist():
            del self.ends[session]
        self._renumber(kept, is_first, np.flatnonzero(np.isin(kept.sessions, touched)))
        self._kept, self.count, self._one_each, self._rows = kept, len(kept), bool(is_first.all()), None
        self.last_id = int(kept.ids[-1]) if len(kept) else 0
        return places

    def _renumber(self, kept: OutlineRows, is_first: Flags, own: Positions) -> None:
        """Renumber the messages of sessions, given all their rows, and update where each session ends."""
        if not len(own):
            return
        own = own[np.argsort(kept.sessions[own], kind="stable")]
        sessions, count = kept.sessions[own], np.cumsum(is_first[own])
        kept.numbers[own] = count - count[np.searchsorted(sessions, sessions)] + 1
        self.ends.update(zip(sessions.tolist(), own.tolist(), strict=True))

    def restore(self, rows: OutlineRows) -> None:
        """Take over these rows as its own."""
        self._kept, self._rows = rows, None
        self.count = self.on_disk = len(rows)
        self.last_id = int(rows.ids[-1]) if len(rows) else 0
        sessions, from_end = np.unique(rows.sessions[::-1], return_index=True)
        self._one_each = bool((np.diff(rows.ids) > 0).all())
        self.ends = dict(zip(sessions.tolist(), (len(rows) - 1 - from_end).tolist(), strict=True))

    def rows(self) -> OutlineRows:
        """Return a snapshot of the current rows."""
        if self._rows is None:
            rows = _taken(self._kept, slice(self.count))
            dense = self._one_each and self.count > 0 and int(rows.ids[-1] - rows.ids[0]) == self.count - 1
            self._rows = replace(rows, is_dense=dense)
        return self._rows


def signs_of(halves: bytes, dimension: int) -> Signs:
    """Return the signs of vectors stored as half floats, 64 in each number."""
    bits = np.frombuffer(halves, dtype=np.uint16).reshape(-1, dimension) >> MAGNITUDE_WIDTH
    return _packed(bits.astype(np.uint8))


def _packed(bits: NDArray[np.uint8] | Flags) -> Signs:
    packed = np.packbits(bits, axis=1)
    width = -(-bits.shape[1] // 64) * 8
    if packed.shape[1] < width:
        packed = np.pad(packed, ((0, 0), (0, width - packed.shape[1])))
    return np.ascontiguousarray(packed).view(np.uint64).T


def byte_sums(values: Vector) -> Vector:
    """Return the sum for each byte whose bits, from the lowest, have these values: a line of 256 sums per eight
    values.
    """
    whole = np.zeros(-(-max(len(values), 1) // 8) * 8, dtype=np.float32)
    whole[: len(values)] = values
    sums: Vector = whole.reshape(-1, 8) @ BITS
    return sums


def _disagreement(signs: Signs, wanted: Signs) -> NDArray[np.uint16]:
    """Return the number of places in which each row's signs differ from the vector's."""
    total = np.empty(signs.shape[1], dtype=np.uint16)
    for start in range(0, len(total), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        np.bitwise_count(signs[:, part] ^ wanted).sum(axis=0, dtype=np.uint16, out=total[part])
    return total


def _closest(apart: NDArray[np.uint16], wanted: int) -> Positions:
    """Return the places of the smallest numbers; among equals the last ones."""
    if len(apart) <= wanted:
        return np.arange(len(apart))
    limit = int(np.searchsorted(np.cumsum(np.bincount(apart)), wanted))
    below = (apart < limit).nonzero()[0]
    at_limit = (apart == limit).nonzero()[0]
    return np.concatenate([below, at_limit[len(at_limit) - (wanted - len(below)) :]])


def _nearest_left(before: Whole32, stays: Flags) -> Whole32:
    """Return for each row the nearest preceding row that stays. Each step looks back twice as far, so a long run of
    dropped rows takes few steps.
    """
    before = before.copy()
    cut = np.flatnonzero((before != NONE) & ~stays[before])
    while len(cut):
        check_reading()
        before[cut] = before[before[cut]]
        cut = cut[(before[cut] != NONE) & ~stays[before[cut]]]
    return before


def _empty(dimension: int, rows: int = 0) -> OutlineRows:
    def whole() -> Whole32:
        return np.full(rows, NONE, dtype=np.int32)

    signs = np.zeros((-(-dimension // 64), rows), dtype=np.uint64)
    ids = np.zeros(rows, dtype=np.int64)
    return OutlineRows(ids, whole(), whole(), whole(), whole(), whole(), whole(), whole(), signs)


def _grown(rows: OutlineRows, room: int) -> OutlineRows:
    grown = _empty(len(rows.signs) * 64, room)
    for name in ARRAYS:
        array = getattr(rows, name)
        if rows.signed is None or name != "signs":
            getattr(grown, name)[..., : array.shape[-1]] = array
    if rows.signed is None:
        return grown
    places = rows.signed.nonzero()[0]  # untouched memory of the others is never allocated
    grown.signs[:, places] = rows.signs[:, places]
    signed = np.zeros(room, dtype=bool)
    signed[places] = True
    return replace(grown, signed=signed)


def _taken(rows: OutlineRows, which: slice | Positions) -> OutlineRows:
    signed = None if rows.signed is None else rows.signed[which]
    return OutlineRows(*(getattr(rows, name)[..., which] for name in ARRAYS), signed=signed)
