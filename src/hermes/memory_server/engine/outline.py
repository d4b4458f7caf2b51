"""What is kept in memory of a workspace's messages: who said it where and when, what stands before and after it, and
the signs of its vectors. 68 bytes for each, so that a million of them fit.

The tables are the truth. Rows that other processes wrote are picked up by their ids, rows that disappeared (the
generation changed) are left out. Throwing an outline away costs time and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.patience import check_reading
from hermes.memory_server.db.text_index import MessageIds
from hermes.memory_server.embedder import Vector
from hermes.ranking.dates import MICROSECONDS
from hermes.ranking.scoring import Flags

Whole32 = NDArray[np.int32]
Positions = NDArray[np.signedinteger[Any]]
"""Numbers of rows."""
Signs = NDArray[np.uint64]
NONE = -1
"""The row of no message."""
BLOCK = 32768
"""How many rows are compared at a time: few enough to stay in the processor's cache."""
BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little").astype(np.float32)
"""The bits of each byte, the lowest first; a line for each bit."""
SIGN_AT = 15
"""The bit of a half float that holds its sign."""


class SignSource(Protocol):
    """Where the signs of vectors are that an outline does not have, in one transaction."""

    def fill(self, rows: OutlineRows, wanted: Positions) -> None:
        """Read the signs of these rows into `rows.signs`, as far as they are missing, and mark them in `signed`."""

    def nearest(self, rows: OutlineRows, vector: Vector, wanted: int, within: Positions | None) -> Positions:
        """As `OutlineRows.nearest`, which may be a little wrong."""


@dataclass(frozen=True, slots=True)
class OutlineRows:
    """A row for each piece of a message, in the order of ids, as they were at one moment."""

    ids: MessageIds
    sessions: Whole32
    peers: Whole32
    days: Whole32
    traits: Whole32
    before: Whole32
    """The last row of the message before it in its session, or NONE."""
    after: Whole32
    """For the last row of a message: the first row of the next message in its session, or NONE. It may be a row that
    was added after this value was made."""
    numbers: Whole32
    """Which message of its session it belongs to, from 1 on."""
    signs: Signs
    """The signs of the vectors, 64 in each number; a line for each 64 dimensions."""
    is_dense: bool = field(default=False, kw_only=True)
    """Whether ids are known to have no gap and no repetition, so that an id leads to its row by counting."""
    signed: Flags | None = field(default=None, kw_only=True)
    """Which rows have their signs here; None for all."""
    source: SignSource | None = field(default=None, kw_only=True)
    """Where the others' signs are."""

    def __len__(self) -> int:
        return len(self.ids)

    def last(self, rows: Positions) -> Positions:
        """The last row of the message that each row belongs to."""
        if not len(self.ids) or self.is_dense:
            return rows
        return np.searchsorted(self.ids, self.ids[rows], side="right") - 1

    def first(self, ids: MessageIds) -> Positions:
        """The first row of each message that is here."""
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
        """The first row of the messages that these rows belong to."""
        return rows if self.is_dense else self.first(self.ids[rows])

    def nearest(self, vector: Vector, wanted: int, within: Positions | None = None) -> Positions:
        """The rows whose signs agree most with those of a vector, in no order; of equals the newest."""
        if self.source is not None:
            return self.source.nearest(self, vector, wanted, within)
        return self.nearest_known(vector, wanted, within)

    def nearest_known(self, vector: Vector, wanted: int, within: Positions | None = None) -> Positions:
        """As `nearest`, by the signs that are here."""
        signs = self.signs if within is None else self.signs[:, within]
        found = _closest(_disagreement(signs, _packed(np.signbit(vector)[None])), wanted)
        return found if within is None else within[found]

    def lines(self, rows: Positions) -> Signs:
        """The signs of rows, a line for each."""
        if self.source is not None:
            self.source.fill(self, rows)
        # All at once would copy the whole array first: there is room behind its rows.
        return np.array([signs.take(rows) for signs in self.signs]).T

    def closeness(self, rows: Positions, vector: Vector) -> Vector:
        """How close rows are to a vector, as far as their signs tell: 1.0 would be the same direction."""
        packed = self.lines(rows).copy().view(np.uint8)
        wide = np.zeros(packed.shape[1] * 8, dtype=np.float32)
        wide[: len(vector)] = vector
        negative = byte_sums(wide.reshape(-1, 8)[:, ::-1].ravel()).ravel()  # the signs of a byte begin at its last bit
        width = packed.shape[1]
        found = negative.take(packed + np.arange(0, width * 256, 256)) @ np.ones(width, dtype=np.float32)
        close: Vector = (vector.sum() - 2 * found) / np.float32(len(vector) ** 0.5)
        return close


ARRAYS = tuple(each.name for each in fields(OutlineRows) if not each.kw_only)
"""The names of what rows consist of."""


class Outline:
    """The rows of one workspace, which grow."""

    def __init__(self, dimension: int) -> None:
        self.guard = threading.Lock()
        self.is_whole = False
        """Was it ever read to its end?"""
        self.generation = NONE
        self.last_id = self.count = 0
        self.on_disk = 0
        """How many rows its file has."""
        self.saved_at = float("-inf")
        """When that was written, by the monotonic clock."""
        self._dimension = dimension
        self._kept = _empty(dimension)
        self.is_lean = False
        """Are signs left to the database, until a search needs them?"""
        self.ends: dict[int, int] = {}
        """The last row of each session. It grows with the rows; when some are left out, another takes its place."""
        self._one_each = True
        """Has each message one row?"""
        self._rows: OutlineRows | None = None
        """What `rows()` returned last, as long as it is true."""

    def add(self, rows: Sequence[Any]) -> None:
        """Append rows of (id, session, author, date, traits, vector), which are newer than all before; those of a lean
        outline have no vector."""
        start, end = self.count, self.count + len(rows)
        if end > len(self._kept.ids):
            self._kept = _grown(self._kept, max(16, end + end // 8))
        kept, new = self._kept, slice(start, end)
        ids, sessions, peers, dates, traits, *blobs = zip(*rows, strict=True)
        kept.ids[new] = ids
        kept.sessions[new] = sessions
        kept.peers[new] = peers
        kept.days[new] = np.array(dates, dtype=np.int64) // MICROSECONDS
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
        """Leave the signs of all rows to the database. The outline must be empty."""
        self.is_lean = True
        self._kept, self._rows = replace(self._kept, signed=np.zeros(len(self._kept), dtype=bool)), None

    def keep(self, authors: Mapping[int, int]) -> None:
        """Keep the rows of these messages alone, with these authors. `rows()` taken before stay as they are."""
        ids = self.rows().ids
        self.leave_out(ids[~np.isin(ids, np.fromiter(authors, dtype=np.int64))])
        peers = self._kept.peers.copy()
        peers[: self.count] = [authors[message] for message in self.rows().ids.tolist()]
        self._kept, self._rows = replace(self._kept, peers=peers), None

    def leave_out(self, ids: MessageIds) -> Whole32:
        """Leave out the rows of some messages. Returns where each old row is now, or NONE. `rows()` taken before stay
        as they are."""
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
        self._count_again(kept, is_first, np.flatnonzero(np.isin(kept.sessions, touched)))
        self._kept, self.count, self._one_each, self._rows = kept, len(kept), bool(is_first.all()), None
        self.last_id = int(kept.ids[-1]) if len(kept) else 0
        return places

    def _count_again(self, kept: OutlineRows, is_first: Flags, own: Positions) -> None:
        """Number the messages of sessions anew, given all rows of these, and find where each ends."""
        if not len(own):
            return
        own = own[np.argsort(kept.sessions[own], kind="stable")]
        sessions, count = kept.sessions[own], np.cumsum(is_first[own])
        kept.numbers[own] = count - count[np.searchsorted(sessions, sessions)] + 1
        self.ends.update(zip(sessions.tolist(), own.tolist(), strict=True))

    def restore(self, rows: OutlineRows) -> None:
        """Hold these rows, which are its own from now on."""
        self._kept, self._rows = rows, None
        self.count = self.on_disk = len(rows)
        self.last_id = int(rows.ids[-1]) if len(rows) else 0
        sessions, from_end = np.unique(rows.sessions[::-1], return_index=True)
        self._one_each = bool((np.diff(rows.ids) > 0).all())
        self.ends = dict(zip(sessions.tolist(), (len(rows) - 1 - from_end).tolist(), strict=True))

    def rows(self) -> OutlineRows:
        """What it holds now."""
        if self._rows is None:
            rows = _taken(self._kept, slice(self.count))
            dense = self._one_each and self.count > 0 and int(rows.ids[-1] - rows.ids[0]) == self.count - 1
            self._rows = replace(rows, is_dense=dense)
        return self._rows


def signs_of(halves: bytes, dimension: int) -> Signs:
    """The signs of vectors that are stored as half floats, 64 in a number."""
    bits = np.frombuffer(halves, dtype=np.uint16).reshape(-1, dimension) >> SIGN_AT
    return _packed(bits.astype(np.uint8))


def _packed(bits: NDArray[np.uint8] | Flags) -> Signs:
    packed = np.packbits(bits, axis=1)
    width = -(-bits.shape[1] // 64) * 8
    if packed.shape[1] < width:
        packed = np.pad(packed, ((0, 0), (0, width - packed.shape[1])))
    return np.ascontiguousarray(packed).view(np.uint64).T


def byte_sums(values: Vector) -> Vector:
    """What a byte stands for whose bits, from the lowest on, are worth these values: a line of 256 sums for each eight
    values."""
    whole = np.zeros(-(-max(len(values), 1) // 8) * 8, dtype=np.float32)
    whole[: len(values)] = values
    sums: Vector = whole.reshape(-1, 8) @ BITS
    return sums


def _disagreement(signs: Signs, wanted: Signs) -> NDArray[np.uint16]:
    """In how many places the signs of each row differ from those of the vector."""
    total = np.empty(signs.shape[1], dtype=np.uint16)
    for start in range(0, len(total), BLOCK):
        part = slice(start, start + BLOCK)
        np.bitwise_count(signs[:, part] ^ wanted).sum(axis=0, dtype=np.uint16, out=total[part])
    return total


def _closest(apart: NDArray[np.uint16], wanted: int) -> Positions:
    """The places of the smallest numbers; of equals the last ones."""
    if len(apart) <= wanted:
        return np.arange(len(apart))
    limit = int(np.searchsorted(np.cumsum(np.bincount(apart)), wanted))
    below = (apart < limit).nonzero()[0]
    at_limit = (apart == limit).nonzero()[0]
    return np.concatenate([below, at_limit[len(at_limit) - (wanted - len(below)) :]])


def _nearest_left(before: Whole32, stays: Flags) -> Whole32:
    """For each row the nearest row before it that stays. Each step looks twice as far back, so that a long run of
    leaving rows takes few steps."""
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
    places = rows.signed.nonzero()[0]  # memory of the others is never touched, and so not taken
    grown.signs[:, places] = rows.signs[:, places]
    signed = np.zeros(room, dtype=bool)
    signed[places] = True
    return replace(grown, signed=signed)


def _taken(rows: OutlineRows, which: slice | Positions) -> OutlineRows:
    signed = None if rows.signed is None else rows.signed[which]
    return OutlineRows(*(getattr(rows, name)[..., which] for name in ARRAYS), signed=signed)
