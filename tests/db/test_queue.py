"""Facts of the queue that need no model: its status, and the cost of a claim."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.db import queue, queue_items
from hermes.db.queue import MAX_CRASHES, MIN_SPLIT_LOSSES, Claim, Dead, Defect, Done, Retry
from hermes.errors import NotFoundError, StaleError
from tests.db.files import make_file, transaction


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_file(tmp_path / "q.db")
    yield connection
    connection.close()


def add(db: sqlite3.Connection, lane: str, *keys: str, now: float = 0.0, session_id: str | None = None) -> None:
    with transaction(db) as tx:
        for key in keys:
            assert queue.enqueue(tx, "work", lane, key, {}, now=now, session_id=session_id)


def take(db: sqlite3.Connection, *, now: float, limit: int = 1, owner: str = "me") -> Claim | None:
    with transaction(db) as tx:
        return queue.claim(tx, "work", owner, ttl=10.0, now=now, limit=limit)


def taken_keys(db: sqlite3.Connection, *, now: float, limit: int = 1) -> list[str]:
    claim = take(db, now=now, limit=limit)
    return [] if claim is None else [item.key for item in claim.items]


@pytest.mark.contract("2.3", "P1")
def test_items_that_are_lost_again_and_again_are_claimed_alone_and_later_each_time(db: sqlite3.Connection) -> None:
    add(db, "a", "one", "two")
    now, taken, waits = 0.0, list[list[str]](), list[float]()
    for _ in range(4 * MAX_CRASHES):
        with transaction(db) as tx:
            claim = queue.claim(tx, "work", "me", ttl=10.0, now=now, limit=2, lost_pause=lambda times: 9.0 * times)
        if claim is not None:
            taken.append([item.key for item in claim.items])
            now += 11.0
            continue
        [head, _] = queue_items.items(db, "work", "waiting")
        assert head.reason == f"the process ended {len(taken)} times while this was handled"
        waits.append(head.not_before - now)
        now = head.not_before
    assert taken[:MIN_SPLIT_LOSSES] == [["one", "two"]] * MIN_SPLIT_LOSSES
    assert set(map(tuple, taken[MIN_SPLIT_LOSSES:])) == {("one",)}
    assert waits == [9.0 * times for times in range(1, 1 + len(waits))]
    assert len(taken) > MAX_CRASHES
    assert queue_items.items(db, "work", "dead") == []


@pytest.mark.contract("2.3", "P1")
def test_losses_do_not_count_as_defects(db: sqlite3.Connection) -> None:
    add(db, "a", "one")
    now, defects = 0.0, 0
    while not queue_items.items(db, "work", "dead"):
        for kills in (True, True, True, False):
            with transaction(db) as tx:
                claim = queue.claim(tx, "work", "me", ttl=10.0, now=now, lost_pause=lambda _: 0.0)
                assert claim is not None
                if not kills:
                    queue.settle(tx, claim, [Defect(now, "it raised")], now=now)
                    defects += 1
            now += 11.0
    assert defects == MAX_CRASHES


@pytest.mark.contract("2.3")
def test_lane_with_a_backlog_takes_turns_with_the_others(db: sqlite3.Connection) -> None:
    add(db, "busy", "b1", "b2", "b3", now=0.0)
    add(db, "quiet", "q1", now=5.0)
    order = []
    for now in (6.0, 7.0, 8.0, 9.0):
        claim = take(db, now=now)
        assert claim is not None
        order.append(claim.items[0].key)
        with transaction(db) as tx:
            queue.settle(tx, claim, [Done()], now=now)
    assert order == ["b1", "q1", "b2", "b3"]


@pytest.mark.contract("1.8", "2.3")
def test_item_behind_a_deleted_one_does_not_wait_for_its_time(db: sqlite3.Connection) -> None:
    add(db, "a", "gone", session_id="s1")
    add(db, "a", "stays", session_id="s2")
    claim = take(db, now=0.0)
    assert claim is not None
    with transaction(db) as tx:
        queue.settle(tx, claim, [Retry(1000.0, "later")], now=0.0)
        assert queue_items.drop_session(tx, "s1") == 1
    assert taken_keys(db, now=1.0) == ["stays"]


@pytest.mark.contract("P2")
def test_effect_of_an_outcome_that_cannot_be_settled_is_rolled_back_with_it(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE effects (key TEXT)")
    add(db, "a", "one")
    slow = take(db, now=0.0, owner="slow")
    fast = take(db, now=11.0, owner="fast")
    assert slow is not None
    assert fast is not None
    for claim, accepted in ((slow, False), (fast, True), (slow, False)):
        try:
            with transaction(db) as tx:
                tx.execute("INSERT INTO effects VALUES ('one')")
                queue.settle(tx, claim, [Done()], now=12.0)
        except StaleError:
            assert not accepted
        else:
            assert accepted
    assert db.execute("SELECT count(*) FROM effects").fetchone()[0] == 1


@pytest.mark.contract("2.3")
def test_items_behind_a_retry_wait_and_lose_no_attempt(db: sqlite3.Connection) -> None:
    add(db, "a", "one", "two", "three")
    claim = take(db, now=0.0, limit=3)
    assert claim is not None
    with transaction(db) as tx:
        queue.settle(tx, claim, [Done(), Retry(5.0, "busy")], now=1.0)
    assert taken_keys(db, now=4.0, limit=3) == []
    again = take(db, now=5.0, limit=3)
    assert again is not None
    assert [(item.key, item.attempts) for item in again.items] == [("two", 2), ("three", 1)]


def test_status_counts_waiting_and_dead_items_and_their_age(db: sqlite3.Connection) -> None:
    assert queue_items.stats(db, "work", now=9.0) == queue_items.QueueStats(0, 0, 0, 0.0, None)
    add(db, "a", "one", "two", now=1.0)
    add(db, "b", "three", now=2.0)
    claim = take(db, now=3.0)
    assert claim is not None
    with transaction(db) as tx:
        queue.settle(tx, claim, [Dead("bad address")], now=3.0)
    assert queue_items.stats(db, "work", now=9.0) == queue_items.QueueStats(2, 1, 2, 8.0, "bad address")
    assert queue_items.queues(db) == ["work"]


def test_only_a_dead_item_can_be_revived(db: sqlite3.Connection) -> None:
    add(db, "a", "one")
    claim = take(db, now=0.0)
    assert claim is not None
    with transaction(db) as tx:
        queue.settle(tx, claim, [Dead("no")], now=0.0)
        queue_items.revive(tx, claim.items[0].id, now=50.0)
    assert taken_keys(db, now=50.0) == ["one"]
    with pytest.raises(NotFoundError):
        queue_items.revive(db, claim.items[0].id, now=51.0)


def test_item_that_waits_for_its_time_is_not_taken_along_with_a_revived_one(db: sqlite3.Connection) -> None:
    add(db, "a", "one", "two")
    claim = take(db, now=0.0, limit=2)
    assert claim is not None
    with transaction(db) as tx:
        queue.settle(tx, claim, [Dead("no"), Retry(100.0, "later")], now=0.0)
        queue_items.revive(tx, claim.items[0].id, now=1.0)
    assert taken_keys(db, now=1.0, limit=2) == ["one"]


@pytest.mark.contract("P2")
def test_key_is_remembered_until_it_is_pruned(db: sqlite3.Connection) -> None:
    add(db, "a", "one")
    claim = take(db, now=0.0)
    assert claim is not None
    with transaction(db) as tx:
        queue.settle(tx, claim, [Done()], now=10.0)
        assert not queue.enqueue(tx, "work", "a", "one", {}, now=11.0)
        assert queue_items.prune(tx, "work", before=10.0) == 0
        assert queue_items.prune(tx, "work", before=10.5) == 1
        assert queue.enqueue(tx, "work", "a", "one", {}, now=12.0)


def test_backoff_doubles_to_a_cap_and_chance_cuts_at_most_half() -> None:
    assert [queue.backoff(n, lambda: 0.0) for n in (1, 2, 3, 11, 5000)] == [0.5, 1.0, 2.0, 300.0, 300.0]
    assert queue.backoff(3, lambda: 1.0) == 1.0
