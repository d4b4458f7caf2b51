"""The durable queue behind the inbox, the outbound messages and the memory outbox.

    enqueue (once per key) ──> lane, in order ──claim──> handler ──settle──> done | waiting again | dead, with a reason
     └─ held until its time, or `release`

A lane is held as a lease while its items are handled, so that one owner at a time works on it and a former owner's
outcome is refused. Functions run inside the caller's transaction: an item is committed together with its cause, and
settled together with its effect. `now` and the source of random numbers are passed in.

Outcomes of queue items that were handled, and the rules for which of several count.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.lanes import SCHEMA as LANES
from hermes.db.lanes import head_time, hold_lane, release_lane, schedule
from hermes.db.leases import Lease
from hermes.errors import StaleError
from hermes.types import Json

MAX_CRASHES = 5
"""Number of consecutive crashes after which an item is dead: its handler raised, or the process ended while it handled
nothing else. In a queue that keeps lost items (`WorkerOptions.keeps_lost`) only exceptions of the handler count."""

GIVEN_UP = f"the process ended {MAX_CRASHES} times while it handled nothing else"
MIN_SUSPECT_CRASHES = 3
"""Number of consecutive crashes and losses that make an item a suspect: its lane is handled while no other runs."""
MIN_SPLIT_LOSSES = 5
"""Number of consecutive losses after which an item is also claimed without its neighbours, to find the culprit."""


class Done(Struct, frozen=True):
    """Handled, finally. `note` is stored with the item as its result."""

    note: str | None = None


class Retry(Struct, frozen=True):
    """Try again at `at`, without a limit on attempts. Later items of the lane wait too."""

    at: float
    reason: str


class Defect(Struct, frozen=True):
    """The handler raised: try again at `at`, alone from the third time on; the fifth time in a row makes the item dead.

    Items handled together get one each, since nobody knows which of them is to blame.
    """

    at: float
    reason: str


class Postponed(Struct, frozen=True):
    """Neither this item nor later ones were begun: they count as not claimed, with `tried_at` and attempts
    unchanged."""

    at: float
    reason: str | None = None


class Dead(Struct, frozen=True):
    """Never retried automatically; the lane continues."""

    reason: str


ItemOutcome: TypeAlias = Done | Retry | Defect | Postponed | Dead


def weigh(outcomes: Sequence[ItemOutcome], crashes: Sequence[int]) -> list[ItemOutcome]:
    """Return the outcomes that count, for the items of a claim in order, given each item's earlier crashes.

    Outcomes behind an item that must wait do not count, except consecutive Defects. A Defect too many becomes Dead.
    """
    weighed: list[ItemOutcome] = []
    for outcome, before in zip(outcomes, crashes, strict=False):
        waits = bool(weighed) and isinstance(weighed[-1], Retry | Defect | Postponed)
        if waits and not (isinstance(weighed[-1], Defect) and isinstance(outcome, Defect)):
            break
        match outcome:
            case Defect(_, reason) if before + 1 >= MAX_CRASHES:
                weighed.append(Dead(reason))
            case _:
                weighed.append(outcome)
    return weighed


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
    *LANES,
)

TRIED_AT = (
    "ALTER TABLE hermes_queue ADD COLUMN tried_at REAL",
    "CREATE INDEX hermes_queue_held ON hermes_queue (queue, lane, not_before) "
    "WHERE state = 'waiting' AND tried_at IS NULL",
)
"""A later migration: when an item was last claimed (NULL: never), and the index that `release` uses."""

LOST = "ALTER TABLE hermes_queue ADD COLUMN lost INTEGER NOT NULL DEFAULT 0"
"""A later migration: number of consecutive times that the owner of an item vanished."""

ItemState = Literal["waiting", "done", "dead"]
FAILED = "failed for good"
"""The wording of `dead` for people."""


class Item(Struct, frozen=True):
    """One piece of work. `attempts` includes the current attempt.

    `tried_at` is the time of the previous attempt, which may have had its effect.
    """

    id: int
    queue: str
    lane: str
    key: str
    session_id: str | None
    payload: Json
    state: ItemState
    attempts: int
    crashes: int
    lost: int
    created_at: float
    not_before: float
    tried_at: float | None
    reason: str | None

    @property
    def is_apart(self) -> bool:
        """True if the item is claimed without its neighbours, since one of them may cause crashes."""
        return self.lost >= MIN_SPLIT_LOSSES or (self.crashes > 0 and self.crashes + self.lost >= MIN_SUSPECT_CRASHES)

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Item:
        values = {name: row[name] for name in cls.__struct_fields__}
        values["payload"] = json.loads(values["payload"])
        return cls(**values)


class Claim(Struct, frozen=True):
    """A lane that we hold, with the items to handle, in order."""

    lease: Lease
    items: tuple[Item, ...]

    @property
    def queue(self) -> str:
        return self.items[0].queue

    @property
    def lane(self) -> str:
        return self.items[0].lane


def enqueue(
    tx: Tx,
    queue: str,
    lane: str,
    key: str,
    payload: Json,
    *,
    now: float,
    session_id: str | None = None,
    not_before: float | None = None,
) -> bool:
    """Add an item at the end of its lane. Return False, and add nothing, if `key` was used before.

    The item, and later ones of its lane, are held until `not_before`, or until `release`.
    """
    due_at = now if not_before is None else not_before
    added = tx.execute(
        """
        INSERT INTO hermes_queue (queue, lane, key, session_id, payload, not_before, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (queue, key) DO NOTHING
        """,
        (queue, lane, key, session_id, json.dumps(payload, ensure_ascii=False), due_at, now),
    )
    if added.rowcount == 0:
        return False
    tx.execute(
        """
        INSERT INTO hermes_lanes (queue, lane, due_at) VALUES (?, ?, ?)
        ON CONFLICT (queue, lane) DO UPDATE SET due_at = coalesce(due_at, excluded.due_at)
        """,
        (queue, lane, due_at),
    )
    return True


def release(tx: Tx, queue: str, *lanes: str, now: float) -> int:
    """Let items that are held in these lanes be claimed at once; return their number.

    Items that were tried before keep their time, so that no back-off is shortened.
    """
    released = 0
    for lane in lanes:
        freed = tx.execute(
            "UPDATE hermes_queue SET not_before = :now "
            "WHERE queue = :queue AND lane = :lane AND state = 'waiting' AND tried_at IS NULL AND not_before > :now",
            {"now": now, "queue": queue, "lane": lane},
        ).rowcount
        if freed:
            schedule(tx, queue, lane)
        released += freed
    return released


def claim(
    tx: Tx,
    queue: str,
    owner: str,
    *,
    ttl: float,
    now: float,
    limit: int = 1,
    lane: str | None = None,
    lost_pause: Callable[[int], float] = lambda _: 0.0,
) -> Claim | None:
    """Claim the lane that has waited longest, or only `lane`, and up to `limit` of its items.

    Returns None if nothing is due, or other owners hold everything that is. An item that is lost repeatedly waits for
    `lost_pause(n)` seconds after its n-th loss as a suspect.
    """
    while (due := _due_lane(tx, queue, lane, now)) is not None:
        lease = hold_lane(tx, queue, due, owner, ttl=ttl, now=now)
        if lease is not None:
            _count_lost(tx, queue, due, now, lost_pause)
            if items := _take_items(tx, queue, due, now, limit):
                return Claim(lease, items)
            release_lane(tx, queue, due, lease)
        if lane is not None:
            break  # any other has a later `due_at` now, and is not found again
    return None


def _due_lane(tx: Tx, queue: str, lane: str | None, now: float) -> str | None:
    """Return the lane that has waited longest, or `lane` itself if it is due; None if nothing is due."""
    if lane is not None:
        head = head_time(tx, queue, lane)
        return None if head is None or head > now else lane
    row = tx.execute(
        "SELECT lane FROM hermes_lanes WHERE queue = ? AND due_at <= ? ORDER BY due_at LIMIT 1", (queue, now)
    ).fetchone()
    return None if row is None else str(row["lane"])


def heartbeat(tx: Tx, claimed: Claim, *, ttl: float, now: float) -> Claim:
    """Extend a claim by `ttl` from now. Raises StaleError if it was lost."""
    return replace(claimed, lease=leases.renew(tx, claimed.lease, ttl=ttl, now=now))


def renew_expired(tx: Tx, held: dict[str, Claim], *, ttl: float, now: float) -> None:
    """Renew the claims of these lanes after the clock has jumped: they look expired, but nobody else took them."""
    for lane, claimed in list(held.items()):
        if claimed.lease.expires_at <= now:
            with suppress(StaleError):  # really lost: its handler notices at the settlement
                held[lane] = heartbeat(tx, claimed, ttl=ttl, now=now)


def settle(tx: Tx, claimed: Claim, outcomes: Sequence[ItemOutcome], *, now: float) -> list[ItemOutcome]:
    """Record the outcomes of a claim's items, in order, and release the lane. Items without an outcome wait as before.

    Returns the recorded outcomes (see `weigh`). Raises StaleError, and changes nothing, if the claim was lost: call it
    in the transaction of the effect.
    """
    leases.check(tx, claimed.lease)
    recorded = weigh(outcomes, [item.crashes for item in claimed.items])
    for item, outcome in zip(claimed.items, recorded, strict=False):
        _record(tx, item, outcome, now)
    begun = not (recorded and isinstance(recorded[-1], Postponed))
    for item in claimed.items[len(recorded) :]:
        _leave(tx, item, begun=begun)
    leases.release(tx, claimed.lease)
    schedule(tx, claimed.queue, claimed.lane, not_before=now)  # lanes take turns: one with a backlog goes to the back
    return recorded


def _record(tx: Tx, item: Item, outcome: ItemOutcome, now: float) -> None:
    match outcome:
        case Done(note):
            _finish(tx, item.id, "done", note, now)
        case Dead(reason):
            _finish(tx, item.id, "dead", reason, now)
        case Postponed(at, reason):
            _leave(tx, item, begun=False)
            _wait(tx, item, at, item.reason if reason is None else reason, item.crashes)
        case Retry(at, reason):
            _wait(tx, item, at, reason, 0)
            tx.execute("UPDATE hermes_queue SET lost = 0 WHERE id = ? AND lost > 0", (item.id,))
        case Defect(at, reason):
            _wait(tx, item, at, reason, item.crashes + 1)


def backoff(attempts: int, chance: Callable[[], float], *, base: float = 0.5, cap: float = 300.0) -> float:
    """Return the delay in seconds after `attempts` failures: doubling from `base` to `cap`, shortened at random by up
    to half."""
    return min(cap, base * 2.0 ** min(attempts - 1, 60)) * (1.0 - 0.5 * chance())


def count_alone(tx: Tx, claimed: Claim, *, alone: bool) -> None:
    """Count a crash in advance for an item that is handled alone: if the process ends now, the item is to blame. Claims
    of several items are not counted. Settling the claim, or `alone=False`, removes the count."""
    for item in claimed.items if len(claimed.items) == 1 else ():
        tx.execute("UPDATE hermes_queue SET crashes = ? WHERE id = ? AND claimed = 1", (item.crashes + alone, item.id))


def _count_lost(tx: Tx, queue: str, lane: str, now: float, lost_pause: Callable[[int], float]) -> None:
    """Count one more loss for items that were claimed when their owner vanished."""
    lost = tx.execute(
        "UPDATE hermes_queue SET lost = lost + 1, claimed = 0 "
        "WHERE queue = ? AND lane = ? AND claimed = 1 RETURNING id, lost",
        (queue, lane),
    ).fetchall()
    for row in lost:
        if row["lost"] >= MIN_SUSPECT_CRASHES:
            at = now + lost_pause(row["lost"] - MIN_SUSPECT_CRASHES + 1)
            pause = (at, f"the process ended {row['lost']} times while this was handled", row["id"])
            tx.execute("UPDATE hermes_queue SET not_before = ?, reason = ? WHERE id = ? AND state = 'waiting'", pause)


def _take_items(tx: Tx, queue: str, lane: str, now: float, limit: int) -> tuple[Item, ...]:
    rows = tx.execute(
        "SELECT * FROM hermes_queue WHERE queue = ? AND lane = ? AND state = 'waiting' ORDER BY id LIMIT ?",
        (queue, lane, limit),
    ).fetchall()
    taken: list[Item] = []
    for row in rows:
        item = Item.from_row(row)
        if item.not_before > now or (item.is_apart and taken):
            break
        tx.execute(
            "UPDATE hermes_queue SET claimed = 1, attempts = attempts + 1, tried_at = ? WHERE id = ?", (now, row["id"])
        )
        taken.append(replace(item, attempts=item.attempts + 1))
        if item.is_apart:
            break
    return tuple(taken)


def _wait(tx: Tx, item: Item, at: float, reason: str | None, crashes: int) -> None:
    tx.execute(
        "UPDATE hermes_queue SET claimed = 0, not_before = ?, reason = ?, crashes = ? "
        "WHERE id = ? AND state = 'waiting'",
        (at, reason, crashes, item.id),
    )


def _leave(tx: Tx, item: Item, *, begun: bool) -> None:
    """Return an item without an outcome to the queue. Its attempt does not count, but a begun one may have had its
    effect."""
    tx.execute(
        "UPDATE hermes_queue SET claimed = 0, attempts = attempts - 1, tried_at = iif(?, tried_at, ?), crashes = ? "
        "WHERE id = ? AND state = 'waiting'",
        (begun, item.tried_at, item.crashes, item.id),
    )


def _finish(tx: Tx, item_id: int, state: ItemState, reason: str | None, now: float) -> None:
    """Finish an item, unless it was dropped while it was handled."""
    tx.execute(
        "UPDATE hermes_queue SET state = ?, claimed = 0, reason = ?, finished_at = ? "
        "WHERE id = ? AND state = 'waiting'",
        (state, reason, now, item_id),
    )
