"""The one durable queue: inbox, outbound and memory outbox are three users of it.

    enqueue (once per key) ──> lane, in order ──claim──> handler ──settle──> done | waiting again | dead, with a reason

A lane is held as a lease while its items are handled, so one owner at a time works on it and a stale owner's outcome
is refused. Functions run inside the caller's transaction: an item is written with what caused it, and settled with
its effect. `now` and chance are passed in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.db.owners import is_gone
from hermes.errors import NotFoundError
from hermes.types import Json

SCHEMA = (
    """
    CREATE TABLE hermes_queue (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        lane TEXT NOT NULL,
        key TEXT NOT NULL,
        session_id TEXT,
        payload TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'dead')),
        attempts INTEGER NOT NULL DEFAULT 0,
        crashes INTEGER NOT NULL DEFAULT 0,
        claimed INTEGER NOT NULL DEFAULT 0,
        not_before REAL NOT NULL,
        reason TEXT,
        created_at REAL NOT NULL,
        finished_at REAL,
        UNIQUE (queue, key)
    )
    """,
    "CREATE INDEX hermes_queue_waiting ON hermes_queue (queue, lane, id) WHERE state = 'waiting'",
    "CREATE INDEX hermes_queue_claimed ON hermes_queue (queue, lane) WHERE claimed = 1",
    "CREATE INDEX hermes_queue_dead ON hermes_queue (queue, id) WHERE state = 'dead'",
    "CREATE INDEX hermes_queue_done ON hermes_queue (queue, finished_at) WHERE state = 'done'",
    "CREATE INDEX hermes_queue_session ON hermes_queue (session_id) WHERE session_id IS NOT NULL",
    """
    CREATE TABLE hermes_lanes (
        queue TEXT NOT NULL,
        lane TEXT NOT NULL,
        due_at REAL,
        PRIMARY KEY (queue, lane)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX hermes_lanes_due ON hermes_lanes (queue, due_at) WHERE due_at IS NOT NULL",
)
"""`due_at` is when a lane is next worth a claim: its head's time, the end of its lease, or NULL when it is empty."""

MAX_CRASHES = 5
"""How often handling an item may end the process before the item is put aside."""

SUSPECT_CRASHES = 3
"""From here on an item is handled alone, so that only the one that ends the process is put aside."""

State = Literal["waiting", "done", "dead"]


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work. `attempts` counts this one."""

    id: int
    queue: str
    lane: str
    key: str
    session_id: str | None
    payload: Json
    state: State
    attempts: int
    created_at: float
    not_before: float
    reason: str | None

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Item:
        return cls(
            id=row["id"],
            queue=row["queue"],
            lane=row["lane"],
            key=row["key"],
            session_id=row["session_id"],
            payload=json.loads(row["payload"]),
            state=row["state"],
            attempts=row["attempts"],
            created_at=row["created_at"],
            not_before=row["not_before"],
            reason=row["reason"],
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A lane that is ours, with the items to handle, in order."""

    lease: Lease
    items: tuple[Item, ...]

    @property
    def queue(self) -> str:
        return self.items[0].queue

    @property
    def lane(self) -> str:
        return self.items[0].lane


@dataclass(frozen=True, slots=True)
class Done:
    """Handled; never again. `note` is kept with the item: what came of it."""

    note: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now: once more at `at`. What follows in the lane waits too."""

    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Dead:
    """Never by itself again; the lane goes on."""

    reason: str


Outcome: TypeAlias = Done | Retry | Dead


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What `status` and the doctor show."""

    waiting: int
    dead: int
    lanes: int
    oldest_age: float
    last_reason: str | None


def enqueue(
    tx: Tx, queue: str, lane: str, key: str, payload: Json, *, now: float, session_id: str | None = None
) -> bool:
    """Add an item at the end of its lane. False when `key` was there before: nothing is added twice."""
    added = tx.execute(
        """
        INSERT INTO hermes_queue (queue, lane, key, session_id, payload, not_before, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, key) DO NOTHING
        """,
        (queue, lane, key, session_id, json.dumps(payload, ensure_ascii=False), now, now),
    )
    if added.rowcount == 0:
        return False
    tx.execute(
        """
        INSERT INTO hermes_lanes (queue, lane, due_at) VALUES (?, ?, ?)
        ON CONFLICT (queue, lane) DO UPDATE SET due_at = coalesce(due_at, excluded.due_at)
        """,
        (queue, lane, now),
    )
    return True


def claim(tx: Tx, queue: str, owner: str, *, ttl: float, now: float, limit: int = 1) -> Claim | None:
    """Take the lane that has waited longest and up to `limit` of its items, or None when nothing is due."""
    while True:
        row = tx.execute(
            "SELECT lane FROM hermes_lanes WHERE queue = ? AND due_at <= ? ORDER BY due_at LIMIT 1",
            (queue, now),
        ).fetchone()
        if row is None:
            return None
        lane: str = row["lane"]
        lease = hold_lane(tx, queue, lane, owner, ttl=ttl, now=now)
        if lease is None:
            continue
        _bury_crashers(tx, queue, lane, now)
        items = _take_items(tx, queue, lane, now, limit)
        if items:
            return Claim(lease, items)
        release_lane(tx, queue, lane, lease)


def hold_lane(tx: Tx, queue: str, lane: str, owner: str, *, ttl: float, now: float) -> Lease | None:
    """Take a lane without taking items from it (a terminal that resumes a session); None while another holds it."""
    name = _lease_name(queue, lane)
    before = leases.holder(tx, name, now=now)
    if before is not None and is_gone(before.owner):
        leases.evict(tx, before)
    lease = leases.acquire(tx, name, owner, ttl=ttl, now=now)
    held = lease or leases.holder(tx, name, now=now)
    if held is not None:
        tx.execute(
            "UPDATE hermes_lanes SET due_at = ? WHERE queue = ? AND lane = ? AND due_at IS NOT NULL",
            (held.expires_at, queue, lane),
        )
    return lease


def free_lanes(tx: Tx, queue: str, *, now: float) -> int:
    """Let lanes whose owner is certainly gone be claimed at once, rather than when their lease ends."""
    freed = 0
    waiting = tx.execute("SELECT lane FROM hermes_lanes WHERE queue = ? AND due_at > ?", (queue, now)).fetchall()
    for row in waiting:
        held = leases.holder(tx, _lease_name(queue, row["lane"]), now=now)
        if held is not None and is_gone(held.owner):
            leases.evict(tx, held)
            _schedule(tx, queue, row["lane"])
            freed += 1
    return freed


def heartbeat(tx: Tx, claimed: Claim, *, ttl: float, now: float) -> Claim:
    """Keep a claim for another `ttl`. Raises StaleError when it was lost."""
    return replace(claimed, lease=leases.renew(tx, claimed.lease, ttl=ttl, now=now))


def settle(tx: Tx, claimed: Claim, outcomes: Sequence[Outcome], *, now: float) -> None:
    """Record what became of the items, first to last, and let the lane go. Items without an outcome wait as before.

    Raises StaleError, and changes nothing, when the claim was lost: run it in the transaction of the effect.
    """
    leases.check(tx, claimed.lease)
    blocked = False
    for position, item in enumerate(claimed.items):
        outcome = outcomes[position] if position < len(outcomes) and not blocked else None
        match outcome:
            case None:
                tx.execute(
                    "UPDATE hermes_queue SET claimed = 0, attempts = attempts - 1 WHERE id = ? AND state = 'waiting'",
                    (item.id,),
                )
            case Done(note):
                _finish(tx, item.id, "done", note, now)
            case Dead(reason):
                _finish(tx, item.id, "dead", reason, now)
            case Retry(at, reason):
                tx.execute(
                    "UPDATE hermes_queue SET claimed = 0, not_before = ?, reason = ? "
                    "WHERE id = ? AND state = 'waiting'",
                    (at, reason, item.id),
                )
                blocked = True
    leases.release(tx, claimed.lease)
    _schedule(tx, claimed.queue, claimed.lane, not_before=now)  # lanes take turns: one with a backlog goes to the back


def release_lane(tx: Tx, queue: str, lane: str, lease: Lease) -> None:
    """Let a lane go, so that whoever is next can take it at once."""
    leases.release(tx, lease)
    _schedule(tx, queue, lane)


def revoke_lane(tx: Tx, queue: str, lane: str) -> None:
    """Take a lane away from whoever holds it: what they do in it from now on is refused."""
    leases.revoke(tx, _lease_name(queue, lane))
    _schedule(tx, queue, lane)


def backoff(attempts: int, chance: Callable[[], float], *, base: float = 0.5, cap: float = 300.0) -> float:
    """Seconds to wait after `attempts` failures: doubling from `base` to `cap`, cut by up to half by chance."""
    return min(cap, base * 2.0 ** min(attempts - 1, 60)) * (1.0 - 0.5 * chance())


def stats(tx: Tx, queue: str, *, now: float) -> QueueStats:
    """How much waits, how much is dead, and since when."""
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


def queues(tx: Tx) -> list[str]:
    """The names of all queues that were ever used in this file."""
    return [row["queue"] for row in tx.execute("SELECT DISTINCT queue FROM hermes_lanes ORDER BY queue")]


def find(tx: Tx, queue: str, key: str) -> Item | None:
    """The item with this key, whatever its state; None when there never was one, or it was forgotten."""
    row = tx.execute("SELECT * FROM hermes_queue WHERE queue = ? AND key = ?", (queue, key)).fetchone()
    return None if row is None else Item.from_row(row)


def all_waiting(tx: Tx, items: Sequence[Item]) -> bool:
    """Whether none of these items is finished or dropped."""
    marks = ", ".join("?" * len(items))
    waiting = tx.execute(
        f"SELECT count(*) FROM hermes_queue WHERE id IN ({marks}) AND state = 'waiting'", [item.id for item in items]
    ).fetchone()
    return int(waiting[0]) == len(items)


def items(tx: Tx, queue: str, state: State, *, limit: int = 100) -> list[Item]:
    """The oldest items in `state`."""
    # The state is written into the statement, since only then can the index of that state be used.
    rows = tx.execute(
        f"SELECT * FROM hermes_queue WHERE queue = ? AND state = '{state}' ORDER BY id LIMIT ?", (queue, limit)
    )
    return [Item.from_row(row) for row in rows]


def revive(tx: Tx, item_id: int, *, now: float) -> None:
    """Give a dead item another life, at its old place in its lane."""
    row = tx.execute(
        """
        UPDATE hermes_queue SET state = 'waiting', attempts = 0, crashes = 0, not_before = ?, finished_at = NULL
        WHERE id = ? AND state = 'dead' RETURNING queue, lane
        """,
        (now, item_id),
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no dead item {item_id}")
    tx.execute(
        "UPDATE hermes_lanes SET due_at = coalesce(min(due_at, ?1), ?1) WHERE queue = ?2 AND lane = ?3",
        (now, row["queue"], row["lane"]),
    )


def prune(tx: Tx, queue: str, *, before: float) -> int:
    """Forget what was done before then, keys included: keep them for longer than a sender repeats itself."""
    return tx.execute(
        "DELETE FROM hermes_queue WHERE queue = ? AND state = 'done' AND finished_at < ?", (queue, before)
    ).rowcount


def conclude(tx: Tx, queue: str, key: str, note: str, *, now: float) -> None:
    """An item had its effect outside of its lane: it is done, and `note` tells what came of it."""
    tx.execute(
        "UPDATE hermes_queue SET state = 'done', claimed = 0, reason = ?, finished_at = ? WHERE queue = ? AND key = ?",
        (note, now, queue, key),
    )


def assign(tx: Tx, items: Sequence[Item], session_id: str) -> None:
    """Items turned out to belong to this session: they go when it goes."""
    tx.executemany(
        "UPDATE hermes_queue SET session_id = ? WHERE id = ? AND state = 'waiting'",
        [(session_id, item.id) for item in items],
    )


def join_lanes(tx: Tx, queue: str, lane: str, into: str) -> None:
    """What waits in `lane` waits in `into` from now on, in the order of arrival; what is under way is left alone."""
    tx.execute(
        "INSERT INTO hermes_lanes (queue, lane, due_at) VALUES (?, ?, NULL) ON CONFLICT DO NOTHING", (queue, into)
    )
    tx.execute(
        "UPDATE hermes_queue SET lane = ? WHERE queue = ? AND lane = ? AND state = 'waiting' AND claimed = 0",
        (into, queue, lane),
    )
    for changed in (lane, into):
        _schedule(tx, queue, changed)


def drop_session(tx: Tx, session_id: str) -> int:
    """Forget what is queued for a session that goes. Only the keys stay, so that a replay still has no effect."""
    gone = tx.execute("SELECT queue, lane FROM hermes_queue WHERE session_id = ?", (session_id,)).fetchall()
    tx.execute(
        "UPDATE hermes_queue SET state = 'done', payload = 'null', reason = NULL, session_id = NULL, lane = '', "
        "claimed = 0, finished_at = coalesce(finished_at, created_at) WHERE session_id = ?",
        (session_id,),
    )
    for queue, lane in {(row["queue"], row["lane"]) for row in gone}:
        _schedule(tx, queue, lane)  # what went may have kept others of the lane waiting
    return len(gone)


def _lease_name(queue: str, lane: str) -> str:
    return f"lane:{queue}:{lane}"


def _schedule(tx: Tx, queue: str, lane: str, *, not_before: float = 0.0) -> None:
    """Let a lane be due when its head is. While it is held that may be too early, which the next claim mends."""
    tx.execute(
        """
        UPDATE hermes_lanes SET due_at = (
            SELECT max(not_before, ?3) FROM hermes_queue
            WHERE queue = ?1 AND lane = ?2 AND state = 'waiting' ORDER BY id LIMIT 1
        ) WHERE queue = ?1 AND lane = ?2
        """,
        (queue, lane, not_before),
    )


def _bury_crashers(tx: Tx, queue: str, lane: str, now: float) -> None:
    """Items that were under way when their owner vanished: count it, and put them aside when it happens too often."""
    lost = tx.execute(
        "UPDATE hermes_queue SET crashes = crashes + 1, claimed = 0 "
        "WHERE queue = ? AND lane = ? AND claimed = 1 RETURNING id, crashes",
        (queue, lane),
    ).fetchall()
    for row in lost:
        if row["crashes"] >= MAX_CRASHES:
            _finish(tx, row["id"], "dead", f"its handler was lost {row['crashes']} times", now)


def _take_items(tx: Tx, queue: str, lane: str, now: float, limit: int) -> tuple[Item, ...]:
    rows = tx.execute(
        "SELECT * FROM hermes_queue WHERE queue = ? AND lane = ? AND state = 'waiting' ORDER BY id LIMIT ?",
        (queue, lane, limit),
    ).fetchall()
    taken: list[Item] = []
    for row in rows:
        suspect = row["crashes"] >= SUSPECT_CRASHES
        if row["not_before"] > now or (suspect and taken):
            break
        tx.execute("UPDATE hermes_queue SET claimed = 1, attempts = attempts + 1 WHERE id = ?", (row["id"],))
        taken.append(replace(Item.from_row(row), attempts=row["attempts"] + 1))
        if suspect:
            break
    return tuple(taken)


def _finish(tx: Tx, item_id: int, state: State, reason: str | None, now: float) -> None:
    """An item that was dropped while it was handled stays dropped."""
    tx.execute(
        "UPDATE hermes_queue SET state = ?, claimed = 0, reason = ?, finished_at = ? "
        "WHERE id = ? AND state = 'waiting'",
        (state, reason, now, item_id),
    )
