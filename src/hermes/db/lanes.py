"""The lanes of the queue. A lane has one owner at a time, who holds it as a lease; `due_at` is when to claim it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.types import Json

SCHEMA = (
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
"""`due_at` is when a lane is next worth a claim: its head's time, the end of its lease, or NULL if it is empty."""


def lease_name(queue: str, lane: str) -> str:
    return f"lane:{queue}:{lane}"


def hold_lane(tx: Tx, queue: str, lane: str, owner: str, *, ttl: float, now: float) -> Lease | None:
    """Take a lane without its items (for a terminal that resumes a session); return None while another owner holds
    it."""
    name = lease_name(queue, lane)
    lease = leases.acquire(tx, name, owner, ttl=ttl, now=now)
    held = lease or leases.holder(tx, name, now=now)
    if held is not None:
        tx.execute(
            "UPDATE hermes_lanes SET due_at = ? WHERE queue = ? AND lane = ? AND due_at IS NOT NULL",
            (held.expires_at, queue, lane),
        )
    return lease


def release_lane(tx: Tx, queue: str, lane: str, lease: Lease) -> None:
    """Release a lane, so that the next owner can take it at once."""
    leases.release(tx, lease)
    schedule(tx, queue, lane)


def revoke_lane(tx: Tx, queue: str, lane: str) -> None:
    """Take a lane from its holder, whose later writes in it are refused."""
    leases.revoke(tx, lease_name(queue, lane))
    schedule(tx, queue, lane)


def free_lanes(tx: Tx, queue: str, *, now: float) -> None:
    """Free lanes whose owner's process has certainly ended, so that they can be claimed before their lease ends."""
    waiting = tx.execute("SELECT lane FROM hermes_lanes WHERE queue = ? AND due_at > ?", (queue, now)).fetchall()
    for row in waiting:
        if leases.free_from_gone(tx, lease_name(queue, row["lane"]), now=now):
            schedule(tx, queue, row["lane"])


def heed_clock(tx: Tx, queue: str, *, now: float) -> None:
    """Correct the times of waiting items after the clock was set back. Times in the future become `now`; otherwise
    delayed items, and their lanes, would wait until the clock reaches those times again."""
    tx.execute(
        "UPDATE hermes_queue SET not_before = :now, created_at = min(created_at, :now), tried_at = min(tried_at, :now) "
        "WHERE queue = :queue AND state = 'waiting' AND not_before > :now AND (created_at > :now OR tried_at > :now)",
        {"queue": queue, "now": now},
    )
    ahead = tx.execute("SELECT lane FROM hermes_lanes WHERE queue = ? AND due_at > ?", (queue, now)).fetchall()
    for row in ahead:
        schedule(tx, queue, row["lane"])


def join_lanes(tx: Tx, queue: str, lane: str, into: str, *, patch: dict[str, Json] | None = None) -> None:
    """Move the waiting items of `lane` to the lane `into`, in order of arrival. Claimed items stay.

    `patch` replaces fields in the payload of each moved item; payloads must be objects then.
    """
    tx.execute(
        "INSERT INTO hermes_lanes (queue, lane, due_at) VALUES (?, ?, NULL) ON CONFLICT DO NOTHING", (queue, into)
    )
    moved = tx.execute(
        "UPDATE hermes_queue SET lane = ? WHERE queue = ? AND lane = ? AND state = 'waiting' AND claimed = 0 "
        "RETURNING id, payload",
        (into, queue, lane),
    ).fetchall()
    _patch_payloads(tx, moved, patch or {})
    for changed in (lane, into):
        schedule(tx, queue, changed)


def move_items(
    tx: Tx, queue: str, keys: Iterable[str], into: str, *, not_before: float, patch: dict[str, Json]
) -> None:
    """Move items that were never claimed to another lane, with a new time; see `join_lanes`."""
    tx.execute(
        "INSERT INTO hermes_lanes (queue, lane, due_at) VALUES (?, ?, NULL) ON CONFLICT DO NOTHING", (queue, into)
    )
    left = {into}
    for key in keys:
        untaken = "queue = ? AND key = ? AND state = 'waiting' AND tried_at IS NULL"
        found = tx.execute(f"SELECT id, lane, payload FROM hermes_queue WHERE {untaken}", (queue, key)).fetchall()
        for row in found:
            tx.execute("UPDATE hermes_queue SET lane = ?, not_before = ? WHERE id = ?", (into, not_before, row["id"]))
            left.add(row["lane"])
        _patch_payloads(tx, found, patch)
    for changed in left:
        schedule(tx, queue, changed)


def busy_lanes(tx: Tx, queue: str, prefix: str) -> list[str]:
    """Return the lanes with waiting items whose names begin with `prefix`."""
    rows = tx.execute(
        "SELECT lane FROM hermes_lanes WHERE queue = :queue AND lane >= :first AND lane < :last AND due_at IS NOT NULL",
        {"queue": queue, "first": prefix, "last": prefix[:-1] + chr(ord(prefix[-1]) + 1)},
    )
    return [row["lane"] for row in rows]


def _patch_payloads(tx: Tx, rows: Iterable[sqlite3.Row], patch: dict[str, Json]) -> None:
    patched = [(json.dumps(json.loads(row["payload"]) | patch, ensure_ascii=False), row["id"]) for row in rows if patch]
    tx.executemany("UPDATE hermes_queue SET payload = ? WHERE id = ?", patched)


def head_time(tx: Tx, queue: str, lane: str) -> float | None:
    """Return the time from which the first waiting item of a lane may be claimed; None for an empty lane."""
    head = tx.execute(
        "SELECT not_before FROM hermes_queue WHERE queue = ? AND lane = ? AND state = 'waiting' ORDER BY id LIMIT 1",
        (queue, lane),
    ).fetchone()
    return None if head is None else head["not_before"]


def schedule(tx: Tx, queue: str, lane: str, *, not_before: float = 0.0) -> None:
    """Set a lane's `due_at` to the time of its first item. For a lane that is held this is too early; the next claim
    corrects it."""
    tx.execute(
        """
        UPDATE hermes_lanes SET due_at = (
            SELECT max(not_before, :earliest) FROM hermes_queue
            WHERE queue = :queue AND lane = :lane AND state = 'waiting' ORDER BY id LIMIT 1
        ) WHERE queue = :queue AND lane = :lane
        """,
        {"queue": queue, "lane": lane, "earliest": not_before},
    )
