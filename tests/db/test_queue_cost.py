"""The cost of queue operations does not grow with the backlog. It is measured in SQLite steps, not in seconds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from hermes.db import lanes, queue, queue_items
from hermes.db.engine import Tx
from hermes.db.queue import MAX_CRASHES, Claim, Dead, Done, ItemOutcome, Retry
from tests.db.files import make_file, transaction

T = TypeVar("T")
BACKLOG = 10_000
STEPS = 1_000
"""Virtual-machine instructions that one operation may take; a scan of the backlog takes more than 20,000."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_file(tmp_path / "q.db")
    yield connection
    connection.close()


def fill(db: sqlite3.Connection, lane: str) -> None:
    with transaction(db) as tx:
        for number in range(BACKLOG):
            queue.enqueue(tx, "work", lane, f"{lane}{number}", {}, now=0.0, session_id=f"{lane}-{number}")


class Meter:
    """Counts the instructions that SQLite runs for each named act, to the nearest ten."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.costs: dict[str, int] = {}

    def run(self, name: str, act: Callable[[Tx], T]) -> T:
        """Return the result of `act`, run in a transaction."""
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        self.db.set_progress_handler(tick, 10)
        with transaction(self.db) as tx:
            result = act(tx)
        self.db.set_progress_handler(None, 10)
        self.costs[f"{len(self.costs)} {name}"] = ticks * 10
        return result

    @property
    def dear(self) -> dict[str, int]:
        """Return the acts that cost too much."""
        return {name: cost for name, cost in self.costs.items() if cost > STEPS}


def claim_at(now: float) -> Callable[[Tx], Claim | None]:
    return lambda tx: queue.claim(tx, "work", "me", ttl=9.0, now=now, limit=3)


@pytest.mark.contract("2.3")
def test_work_beside_and_in_a_lane_with_a_long_backlog_costs_no_scan(db: sqlite3.Connection) -> None:
    fill(db, "long")
    for number in range(3):
        with transaction(db) as tx:
            queue.enqueue(tx, "work", f"short{number}", f"short{number}", {}, now=0.0)
    meter = Meter(db)
    outcomes: list[tuple[float, ItemOutcome]] = [(1.0, Done()), (2.0, Retry(3.0, "later")), (40.0, Dead("no"))]
    for now, outcome in outcomes:
        for _ in range(4):
            claim = meter.run("claim", claim_at(now))
            if claim is not None:
                claim = meter.run("heartbeat", partial(queue.heartbeat, claimed=claim, ttl=9.0, now=now))
                meter.run("settle", partial(queue.settle, claimed=claim, outcomes=[outcome], now=now))
    meter.run("enqueue", lambda tx: queue.enqueue(tx, "work", "long", "new", {}, now=50.0))
    meter.run("hold", lambda tx: queue.enqueue(tx, "work", "long", "held", {}, now=50.0, not_before=99.0))
    assert meter.run("release", lambda tx: queue.release(tx, "work", "long", now=50.0)) == 1
    assert meter.run("named", lambda tx: queue.claim(tx, "work", "me", ttl=9.0, now=60.0, limit=3, lane="long"))
    meter.run("drop", lambda tx: queue_items.drop_session(tx, "long-5000"))
    assert meter.run("list", lambda tx: queue_items.items(tx, "work", "dead", limit=5))
    assert meter.dear == {}


@pytest.mark.contract("2.3")
def test_taking_over_a_long_lane_whose_owner_vanished_costs_no_scan(db: sqlite3.Connection) -> None:
    fill(db, "long")
    meter = Meter(db)
    for number in range(MAX_CRASHES + 1):
        assert meter.run("claim", claim_at(10.0 * number)) is not None
    assert meter.dear == {}


def test_no_statement_of_the_queue_scans_the_queue(db: sqlite3.Connection) -> None:
    statements: set[str] = set()
    db.set_trace_callback(statements.add)
    with transaction(db) as tx:
        for number in range(4):
            queue.enqueue(tx, "work", "a", str(number), {}, now=0.0, session_id="s")
        for now, outcome in ((0.0, Retry(0.0, "again")), (1.0, Done()), (2.0, Dead("no"))):
            claim = queue.claim(tx, "work", "me", ttl=5.0, now=now, limit=2)
            assert claim is not None
            queue.settle(tx, queue.heartbeat(tx, claim, ttl=5.0, now=now), [outcome], now=now)
        queue_items.revive(tx, queue_items.items(tx, "work", "dead")[0].id, now=2.0)
        queue_items.prune(tx, "work", before=9.0)
        queue_items.items(tx, "work", "waiting", lane="a", after_id=1)
        queue.release(tx, "work", "a", now=2.0)
        lanes.join_lanes(tx, "work", "a", "b", patch={"n": 1})
        lanes.move_items(tx, "work", ["k"], "b", not_before=1.0, patch={"n": 1})
        lanes.busy_lanes(tx, "work", "?")
        queue_items.drop_session(tx, "s")
    db.set_trace_callback(None)
    explained = [text for text in statements if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)", text)]
    assert len(explained) >= 12
    for text in explained:
        plan = [row["detail"] for row in db.execute(f"EXPLAIN QUERY PLAN {text}")]
        assert not [line for line in plan if line.startswith("SCAN") and "CONSTANT" not in line], (text, plan)
