"""Items that are held, retried, taken out of turn, or moved with their payload, and handlers that raise."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.db import lanes, queue, queue_items
from hermes.db.queue import MAX_CRASHES, MIN_SUSPECT_CRASHES, Claim, Dead, Defect, Done, ItemOutcome, Postponed, Retry
from tests.db.files import make_file, transaction


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_file(tmp_path / "q.db")
    yield connection
    connection.close()


def add(db: sqlite3.Connection, key: str, *, now: float, until: float | None = None, lane: str = "a") -> None:
    with transaction(db) as tx:
        assert queue.enqueue(tx, "work", lane, key, {"key": key}, now=now, session_id="s", not_before=until)


def take(db: sqlite3.Connection, *, now: float, limit: int = 50, lane: str | None = None, owner: str = "me") -> Claim:
    with transaction(db) as tx:
        claim = queue.claim(tx, "work", owner, ttl=30.0, now=now, limit=limit, lane=lane)
    assert claim is not None
    return claim


def nothing_due(db: sqlite3.Connection, *, now: float, lane: str | None = None) -> bool:
    with transaction(db) as tx:
        return queue.claim(tx, "work", "me", ttl=30.0, now=now, lane=lane) is None


def settle(db: sqlite3.Connection, claim: Claim, *outcomes: ItemOutcome, now: float) -> list[ItemOutcome]:
    with transaction(db) as tx:
        return queue.settle(tx, claim, outcomes, now=now)


def release(db: sqlite3.Connection, *names: str, now: float) -> int:
    with transaction(db) as tx:
        return queue.release(tx, "work", *names, now=now)


def keys(claim: Claim) -> list[str]:
    return [item.key for item in claim.items]


def tried(claim: Claim) -> list[float | None]:
    return [item.tried_at for item in claim.items]


def test_held_item_is_taken_when_its_time_has_come(db: sqlite3.Connection) -> None:
    add(db, "one", now=0.0, until=120.0)
    add(db, "two", now=1.0)
    assert nothing_due(db, now=119.9)
    assert keys(take(db, now=120.0)) == ["one", "two"]


def test_released_items_are_taken_at_once_and_in_order(db: sqlite3.Connection) -> None:
    add(db, "one", now=0.0, until=120.0)
    add(db, "two", now=1.0, until=3600.0)
    add(db, "three", now=2.0)
    assert release(db, "a", now=8.0) == 2
    assert keys(take(db, now=8.0)) == ["one", "two", "three"]


def test_many_lanes_are_released_in_one_transaction(db: sqlite3.Connection) -> None:
    for lane in ("a", "b", "c"):
        add(db, lane, now=0.0, until=3600.0, lane=lane)
    assert release(db, "a", "b", now=1.0) == 2
    assert {take(db, now=1.0).lane, take(db, now=1.0).lane} == {"a", "b"}
    assert nothing_due(db, now=1.0)


def test_release_cuts_no_back_off_short(db: sqlite3.Connection) -> None:
    for key in ("one", "two"):
        add(db, key, now=0.0)
    settle(db, take(db, now=1.0), Retry(40.0, "timed out"), now=2.0)
    assert release(db, "a", now=3.0) == 0
    assert nothing_due(db, now=39.9)


def test_every_item_of_a_claim_counts_as_tried_whatever_the_first_outcome(db: sqlite3.Connection) -> None:
    for key in ("one", "two", "three"):
        add(db, key, now=0.0)
    first = take(db, now=1.0)
    assert tried(first) == [None, None, None]
    settle(db, first, Retry(5.0, "timed out"), now=2.0)
    second = take(db, now=5.0)
    assert tried(second) == [1.0, 1.0, 1.0]
    settle(db, second, now=6.0)
    assert tried(take(db, now=7.0)) == [5.0, 5.0, 5.0], "given back without an outcome it may still have been begun"


def test_attempt_of_a_lost_owner_is_known(db: sqlite3.Connection) -> None:
    add(db, "one", now=0.0)
    take(db, now=1.0, owner="gone")
    assert tried(take(db, now=40.0)) == [1.0]


def test_revived_item_is_still_known_as_tried(db: sqlite3.Connection) -> None:
    add(db, "one", now=0.0)
    claim = take(db, now=1.0)
    settle(db, claim, Dead("refused"), now=2.0)
    with transaction(db) as tx:
        queue_items.revive(tx, claim.items[0].id, now=3.0)
    assert tried(take(db, now=3.0)) == [1.0]


def test_postponing_an_item_changes_only_its_time(db: sqlite3.Connection) -> None:
    for key in ("one", "two"):
        add(db, key, now=0.0)
    settle(db, take(db, now=1.0, limit=1), Retry(2.0, "timed out"), now=1.5)
    settle(db, take(db, now=3.0), Postponed(31.0), now=3.0)
    assert nothing_due(db, now=30.9)
    again = take(db, now=31.0)
    assert tried(again) == [1.0, None]
    assert [(item.attempts, item.reason) for item in again.items] == [(2, "timed out"), (1, None)]


def test_one_lane_can_be_taken_ahead_of_those_that_have_waited_longer(db: sqlite3.Connection) -> None:
    add(db, "early", now=0.0, lane="a")
    add(db, "late", now=1.0, lane="b")
    add(db, "held", now=1.0, until=60.0, lane="c")
    claim = take(db, now=2.0, lane="b")
    assert keys(claim) == ["late"]
    assert nothing_due(db, now=2.0, lane="b"), "it is held"
    assert nothing_due(db, now=2.0, lane="c"), "its time has not come"
    assert nothing_due(db, now=2.0, lane="unknown")
    assert db.execute("SELECT count(*) FROM hermes_leases").fetchone()[0] == 1
    assert keys(take(db, now=2.0)) == ["early"]


def test_joined_lane_keeps_the_order_of_arrival_and_gets_the_patch(db: sqlite3.Connection) -> None:
    add(db, "one", now=0.0, until=1e12, lane="unknown")
    add(db, "two", now=1.0, lane="a")
    patch = {"address": {"peer": None, "name": "Žofie’s"}, 'odd "name"': [1]}
    with transaction(db) as tx:
        lanes.join_lanes(tx, "work", "unknown", "a", patch=patch)
        queue.release(tx, "work", "a", now=2.0)
    assert [item.payload for item in take(db, now=2.0).items] == [{"key": "one", **patch}, {"key": "two"}]


def test_dropped_items_leave_only_their_keys_and_the_lane_continues(db: sqlite3.Connection) -> None:
    for key in ("one", "two", "three"):
        add(db, key, now=0.0)
    under_way = take(db, now=1.0, limit=1)
    with transaction(db) as tx:
        waiting = queue_items.items(tx, "work", "waiting")
        assert queue_items.drop(tx, [item.id for item in waiting[:2]]) == 2
        assert queue_items.drop(tx, [4711]) == 0
        assert queue.enqueue(tx, "work", "a", "forget", {}, now=2.0)
        assert not queue.enqueue(tx, "work", "a", "two", {}, now=2.0)
    assert nothing_due(db, now=3.0), "what is under way comes first"
    settle(db, under_way, Done(), now=4.0)
    assert keys(take(db, now=5.0)) == ["three", "forget"]
    left = [item.payload for item in queue_items.items(db, "work", "done")]
    assert left == [None, None]


def test_items_are_listed_by_lane_and_page_by_page(db: sqlite3.Connection) -> None:
    for number in range(5):
        add(db, str(number), now=0.0, lane="ab"[number % 2])
    page = queue_items.items(db, "work", "waiting", lane="a", limit=2)
    assert [item.key for item in page] == ["0", "2"]
    rest = queue_items.items(db, "work", "waiting", lane="a", after_id=page[-1].id)
    assert [item.key for item in rest] == ["4"]
    assert [item.key for item in queue_items.items(db, "work", "waiting")] == ["0", "1", "2", "3", "4"]


def test_queues_are_named_by_prefix(db: sqlite3.Connection) -> None:
    with transaction(db) as tx:
        for name in ("memory:b", "inbox", "memory:a"):
            queue.enqueue(tx, name, "a", "one", {}, now=0.0)
    assert queue_items.queues(db, "memory:") == ["memory:a", "memory:b"]
    assert queue_items.queues(db) == ["inbox", "memory:a", "memory:b"]


def test_item_that_makes_its_handler_raise_is_isolated_and_becomes_dead(db: sqlite3.Connection) -> None:
    for key in ("one", "poison", "three"):
        add(db, key, now=0.0)
    now, done, last = 0.0, [], []
    for _ in range(20):
        if nothing := not queue_items.items(db, "work", "waiting"):
            break
        claim = take(db, now=now)
        if "poison" in keys(claim):
            last = settle(db, claim, *[Defect(now, "it raised")] * len(claim.items), now=now)
        else:
            done += keys(claim)
            settle(db, claim, *[Done()] * len(claim.items), now=now)
        now += 1.0
    assert nothing
    assert sorted(done) == ["one", "three"]
    assert last == [Dead("it raised")]
    assert now == MIN_SUSPECT_CRASHES + 1 + (MAX_CRASHES - MIN_SUSPECT_CRASHES) + 1


def test_clean_retry_ends_the_count_of_crashes(db: sqlite3.Connection) -> None:
    add(db, "one", now=0.0)
    now = 0.0
    for _ in range(3):  # reboots in a long outage
        for _ in range(MAX_CRASHES - 1):
            take(db, now=now)
            now += 31.0
        settle(db, take(db, now=now), Retry(now, "the server is down"), now=now)
    assert queue_items.items(db, "work", "dead") == []
