"""Single items of the queue: find, list, count, revive, drop and delete them, without holding a lane.

Isolation: an item that may be the cause of crashes is handled while no other lane of the process runs.

Other lanes go first: such an item waits until nothing runs, for at most HOLD_SECONDS. After that no new lane begins
until the item had its turn. If running lanes have not ended after HOLD_SECONDS more, it is handled beside them, and a
crash does not count against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.lanes import lease_name, schedule
from hermes.db.leases import Lease
from hermes.db.queue import Claim, Item, ItemState
from hermes.errors import NotFoundError


class QueueStats(Struct, frozen=True):
    """Counts for `status` and the doctor."""

    waiting: int
    dead: int
    lanes: int
    oldest_age: float
    last_reason: str | None


def find(tx: Tx, queue: str, key: str) -> Item | None:
    """Return the item with this key in any state; None if it never existed or was pruned."""
    row = tx.execute("SELECT * FROM hermes_queue WHERE queue = ? AND key = ?", (queue, key)).fetchone()
    return None if row is None else Item.from_row(row)


def drop_field(tx: Tx, items: Iterable[Item], name: str) -> None:
    """Remove a large, obsolete field from the payloads of items."""
    tx.executemany(
        "UPDATE hermes_queue SET payload = json_remove(payload, '$.' || ?) WHERE id = ?",
        [(name, item.id) for item in items],
    )


def get(tx: Tx, item_id: int) -> Item | None:
    """Return the item in any state, or None."""
    row = tx.execute("SELECT * FROM hermes_queue WHERE id = ?", (item_id,)).fetchone()
    return None if row is None else Item.from_row(row)


def items(
    tx: Tx, queue: str, state: ItemState, *, lane: str | None = None, after_id: int = 0, limit: int = 100
) -> list[Item]:
    """Return the oldest items in `state`, optionally of one lane; `after_id` continues after a page."""
    in_lane = "" if lane is None else "AND lane = :lane"
    # The state is part of the statement's text, since SQLite can use the partial index only then.
    rows = tx.execute(
        f"SELECT * FROM hermes_queue WHERE queue = :queue AND state = '{state}' {in_lane} AND id > :after "
        "ORDER BY id LIMIT :limit",
        {"queue": queue, "lane": lane, "after": after_id, "limit": limit},
    )
    return [Item.from_row(row) for row in rows]


def made_since(tx: Tx, queue: str, session_id: str, prefix: str, since: float) -> list[Item]:
    """Return a session's items in any state that were queued since then under keys with `prefix`, in order."""
    rows = tx.execute(
        "SELECT * FROM hermes_queue WHERE session_id = ? AND queue = ? AND created_at >= ? AND substr(key, 1, ?) = ? "
        "ORDER BY id",
        (session_id, queue, since, len(prefix), prefix),
    )
    return [Item.from_row(row) for row in rows]


def unsettled(tx: Tx, session_id: str, *, limit: int) -> list[Item]:
    """Return a session's oldest waiting or dead items, of all queues."""
    rows = tx.execute(
        "SELECT * FROM hermes_queue WHERE session_id = ? AND state <> 'done' ORDER BY id LIMIT ?", (session_id, limit)
    )
    return [Item.from_row(row) for row in rows]


def not_done_before(tx: Tx, queue: str, prefix: str, then: float) -> list[Item]:
    """Return items under keys with `prefix`, in order, except those that were done before `then`."""
    rows = tx.execute(
        "SELECT * FROM hermes_queue WHERE queue = ? AND key >= ? AND key < ? "
        "AND (state <> 'done' OR finished_at >= ?) ORDER BY id",
        (queue, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1), then),
    )
    return [Item.from_row(row) for row in rows]


def all_waiting(tx: Tx, items: Sequence[Item]) -> bool:
    """Return True if none of these items is finished or dropped."""
    marks = ", ".join("?" * len(items))
    waiting = tx.execute(
        f"SELECT count(*) FROM hermes_queue WHERE id IN ({marks}) AND state = 'waiting'", [item.id for item in items]
    ).fetchone()
    return int(waiting[0]) == len(items)


def stats(tx: Tx, queue: str, *, now: float) -> QueueStats:
    """Return the numbers of waiting and dead items, the age of the oldest, and the last reason."""
    waiting = tx.execute(
        "SELECT count(*), count(DISTINCT lane), min(created_at) FROM hermes_queue "
        "WHERE queue = ? AND state = 'waiting'",
        (queue,),
    ).fetchone()
    dead = tx.execute("SELECT count(*) FROM hermes_queue WHERE queue = ? AND state = 'dead'", (queue,)).fetchone()
    last = tx.execute(
        "SELECT reason FROM hermes_queue WHERE queue = ? AND state IN ('waiting', 'dead') AND reason IS NOT NULL "
        "ORDER BY id DESC LIMIT 1",
        (queue,),
    ).fetchone()
    oldest = now if waiting[2] is None else waiting[2]
    return QueueStats(waiting[0], dead[0], waiting[1], max(0.0, now - oldest), last["reason"] if last else None)


def overdue(tx: Tx, queue: str, *, now: float) -> tuple[int, str | None]:
    """Return how many waiting items failed before or are due, and the newest reason."""
    late = "FROM hermes_queue WHERE queue = ? AND state = 'waiting' AND (reason IS NOT NULL OR not_before <= ?)"
    count = tx.execute(f"SELECT count(*) {late}", (queue, now)).fetchone()[0]
    last = tx.execute(f"SELECT reason {late} AND reason IS NOT NULL ORDER BY id DESC LIMIT 1", (queue, now)).fetchone()
    return int(count), last["reason"] if last else None


def queues(tx: Tx, prefix: str = "") -> list[str]:
    """Return the names of all queues ever used in this file, or of those that begin with `prefix`."""
    names = [row["queue"] for row in tx.execute("SELECT DISTINCT queue FROM hermes_lanes ORDER BY queue")]
    return [name for name in names if name.startswith(prefix)]


def revive(tx: Tx, item_id: int, *, now: float) -> None:
    """Make a dead item wait again, at its old place in its lane."""
    row = tx.execute(
        """
        UPDATE hermes_queue
        SET state = 'waiting', attempts = 0, crashes = 0, lost = 0, not_before = ?, finished_at = NULL
        WHERE id = ? AND state = 'dead' RETURNING queue, lane
        """,
        (now, item_id),
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no dead item {item_id}")
    tx.execute(
        "UPDATE hermes_lanes SET due_at = coalesce(min(due_at, :now), :now) WHERE queue = :queue AND lane = :lane",
        {"now": now, "queue": row["queue"], "lane": row["lane"]},
    )


def conclude(tx: Tx, queue: str, key: str, note: str, *, now: float) -> None:
    """Mark an item as done whose effect happened outside its lane; `note` is its result."""
    tx.execute(
        "UPDATE hermes_queue SET state = 'done', claimed = 0, reason = ?, finished_at = ? WHERE queue = ? AND key = ?",
        (note, now, queue, key),
    )


def assign(tx: Tx, items: Sequence[Item], session_id: str) -> None:
    """Assign waiting items to a session, with which they will be deleted."""
    tx.executemany(
        "UPDATE hermes_queue SET session_id = ? WHERE id = ? AND state = 'waiting'",
        [(session_id, item.id) for item in items],
    )


def find_held(tx: Tx, ids: Iterable[int], *, now: float) -> list[Lease]:
    """Return the leases under which any of these items is handled now."""
    lanes: set[tuple[str, str]] = set()
    for item_id in ids:
        row = tx.execute("SELECT queue, lane FROM hermes_queue WHERE id = ? AND claimed = 1", (item_id,)).fetchone()
        if row is not None:
            lanes.add((row["queue"], row["lane"]))
    found = [leases.holder(tx, lease_name(queue, lane), now=now) for queue, lane in sorted(lanes)]
    return [lease for lease in found if lease is not None]


def is_any_tried(tx: Tx, ids: Iterable[int], *, since: float) -> bool:
    """Return True if one of these items was claimed since then and waits again."""
    tried = "SELECT 1 FROM hermes_queue WHERE id = ? AND state = 'waiting' AND claimed = 0 AND tried_at >= ?"
    return any(tx.execute(tried, (item_id, since)).fetchone() is not None for item_id in ids)


def is_held(tx: Tx, lease: Lease, *, now: float) -> bool:
    """Return True if items claimed under this lease may still be handled."""
    held = leases.holder(tx, lease.name, now=now)
    return held is not None and held.epoch == lease.epoch


def prune(tx: Tx, queue: str, *, before: float) -> int:
    """Delete items done before then, with their keys. Keep keys for longer than a sender repeats itself."""
    return tx.execute(
        "DELETE FROM hermes_queue WHERE queue = ? AND state = 'done' AND finished_at < ?", (queue, before)
    ).rowcount


def drop(tx: Tx, ids: Iterable[int]) -> int:
    """Drop items in any state, even claimed ones. Their keys stay, so that a replay has no effect."""
    changed: set[tuple[str, str]] = set()
    dropped = 0
    for item_id in ids:
        row = tx.execute("SELECT queue, lane FROM hermes_queue WHERE id = ?", (item_id,)).fetchone()
        if row is not None:
            changed.add((row["queue"], row["lane"]))
            dropped += 1
            tx.execute(
                "UPDATE hermes_queue SET state = 'done', payload = 'null', reason = NULL, session_id = NULL, "
                "lane = '', claimed = 0, finished_at = coalesce(finished_at, created_at) WHERE id = ?",
                (item_id,),
            )
    for queue, lane in changed:
        schedule(tx, queue, lane)  # what went may have kept others of the lane waiting
    return dropped


def withdraw(tx: Tx, items: Iterable[Item]) -> list[Item]:
    """Delete items that were never claimed, with their keys, so that they can be queued again. Return the deleted
    ones."""
    gone = []
    for item in items:
        untaken = "id = ? AND state = 'waiting' AND claimed = 0 AND tried_at IS NULL"
        row = tx.execute(f"DELETE FROM hermes_queue WHERE {untaken} RETURNING queue, lane", (item.id,)).fetchone()
        if row is not None:
            schedule(tx, row["queue"], row["lane"])
            gone.append(item)
    return gone


def drop_session(tx: Tx, session_id: str) -> int:
    """Drop the items of a session that is deleted."""
    rows = tx.execute("SELECT id FROM hermes_queue WHERE session_id = ?", (session_id,)).fetchall()
    return drop(tx, [row["id"] for row in rows])


HOLD_SECONDS = 10.0
MAX_ALONE_SECONDS = 60.0
"""Maximum time that other lanes wait for an item that is handled alone."""


class Taken(Struct, frozen=True):
    """Lanes that a worker has claimed. `put_off` is the lane of a suspect item that could not begin."""

    claims: list[Claim]
    is_alone: bool = False
    put_off: str | None = None


class Isolation:
    """The running lanes of one process, over all workers of one store."""

    def __init__(self) -> None:
        self.taking = asyncio.Lock()
        """Held while lanes are claimed, so that two workers do not begin at the same time."""
        self.running = 0
        self.alone: Claim | None = None
        self.wakes: list[asyncio.Event] = []
        self._since = 0.0
        self._waiting: tuple[str, str] | None = None

    def admits(self, queue: str, now: float) -> bool:
        """Return False while lanes of `queue` must not begin."""
        waited = abs(now - self._since)  # a clock that was set back must not prolong it
        if self.alone is not None:
            return self.alone.queue == queue and waited >= MAX_ALONE_SECONDS
        if self._waiting is None or not HOLD_SECONDS <= waited < 2 * HOLD_SECONDS:
            return True
        return self._waiting[0] == queue and self.running == 0

    def overdue_lane(self, queue: str, now: float) -> str | None:
        """Return the lane of `queue` that has waited too long to be handled alone."""
        if self._waiting is None or self._waiting[0] != queue or now - self._since < HOLD_SECONDS:
            return None
        return self._waiting[1]

    def begin(self, queue: str, taken: Taken, now: float) -> None:
        """Record a worker's claims."""
        self.alone = taken.claims[0] if taken.is_alone else None
        if taken.is_alone:
            self._since, self._waiting = now, None
        elif taken.put_off is not None and self._waiting is None:
            self._since, self._waiting = now, (queue, taken.put_off)
        elif taken.put_off is None and self._waiting is not None and self._waiting[0] == queue:
            self._waiting = None

    def end(self, claimed: Claim) -> None:
        """Record the end of a lane's work."""
        self.running -= 1
        if self.alone is claimed:
            self.alone = None
            for wake in self.wakes:
                wake.set()
