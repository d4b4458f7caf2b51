"""What the queue's work costs does not grow with what waits: counted in SQLite's own steps, not in seconds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.queue import Dead, Done, Retry
from tests.db.files import make_file, transaction

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


def steps(db: sqlite3.Connection, act: Callable[[Tx], object]) -> int:
    """How many instructions `act` runs, to the nearest ten."""
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    db.set_progress_handler(tick, 10)
    with transaction(db) as tx:
        act(tx)
    db.set_progress_handler(None, 10)
    return ticks * 10


@pytest.mark.contract("2.3")
def test_work_beside_and_in_a_lane_with_a_long_backlog_costs_no_scan(db: sqlite3.Connection) -> None:
    fill(db, "long")
    for number in range(3):
        with transaction(db) as tx:
            queue.enqueue(tx, "work", f"short{number}", f"short{number}", {}, now=0.0)
    costs: dict[str, int] = {}
    for now, outcome in ((1.0, Done()), (2.0, Retry(3.0, "later")), (40.0, Dead("no"))):
        for turn in range(4):
            claims: list[queue.Claim | None] = []
            name = f"{type(outcome).__name__} {turn}"
            costs[f"claim {name}"] = steps(
                db, lambda tx, now=now: claims.append(queue.claim(tx, "work", "me", ttl=9.0, now=now, limit=3))
            )
            claim = claims[0]
            if claim is None:
                continue
            costs[f"beat {name}"] = steps(db, lambda tx, c=claim, now=now: queue.heartbeat(tx, c, ttl=9.0, now=now))
            costs[f"settle {name}"] = steps(
                db, lambda tx, c=claim, o=outcome, now=now: queue.settle(tx, c, [o], now=now)
            )
    costs["enqueue"] = steps(db, lambda tx: queue.enqueue(tx, "work", "long", "new", {}, now=50.0))
    costs["drop"] = steps(db, lambda tx: queue.drop_session(tx, "long-5000"))
    costs["dead items"] = steps(db, lambda tx: queue.items(tx, "work", "dead", limit=5))
    assert {name: cost for name, cost in costs.items() if cost > STEPS} == {}


@pytest.mark.contract("2.3")
def test_taking_over_a_long_lane_whose_owner_vanished_costs_no_scan(db: sqlite3.Connection) -> None:
    fill(db, "long")
    for number in range(queue.MAX_CRASHES + 1):
        now = 10.0 * number
        cost = steps(db, lambda tx, now=now: queue.claim(tx, "work", "me", ttl=9.0, now=now, limit=2))
        assert cost <= STEPS


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
        queue.revive(tx, queue.items(tx, "work", "dead")[0].id, now=2.0)
        queue.prune(tx, "work", before=9.0)
        queue.drop_session(tx, "s")
    db.set_trace_callback(None)
    explained = [text for text in statements if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)", text)]
    assert len(explained) >= 12
    for text in explained:
        plan = [row["detail"] for row in db.execute(f"EXPLAIN QUERY PLAN {text}")]
        assert not [line for line in plan if line.startswith("SCAN") and "CONSTANT" not in line], (text, plan)
