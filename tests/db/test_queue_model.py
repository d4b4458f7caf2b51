"""The queue under any sequence of work, crashes, expiries and late settlements, against a simple model."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hermes.db import lanes, leases, queue, queue_items
from hermes.db.leases import Lease
from hermes.db.queue import (
    MAX_CRASHES,
    MIN_SUSPECT_CRASHES,
    Claim,
    Dead,
    Defect,
    Done,
    Item,
    ItemOutcome,
    Postponed,
    Retry,
)
from hermes.errors import StaleError
from tests.db.files import dump, make_file, transaction
from tests.scale import scale

QUEUE = "work"
LANES = ("a", "b", "c")
OWNERS = ("p1", "p2", "p3")
SESSIONS = ("s1", "s2")
TTL = 30.0
VERDICTS = st.lists(st.sampled_from("ddrxfp"), min_size=1, max_size=4)
PAUSES = st.sampled_from((0.0, 8.0))
HOLDS = st.sampled_from((None, None, 8.0, 100.0))
WAITS = Retry | Defect | Postponed


@dataclass
class Holding:
    """A lane that some process believes to hold, with the items it claimed, if any."""

    lane: str
    lease: Lease
    claim: Claim | None = None


class QueueMachine(RuleBasedStateMachine):
    """Every rule is an action of a process; effects are rows written in the transaction of `settle`."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.db = make_file(Path(self.folder.name) / "q.db")
        self.db.execute("CREATE TABLE effects (seq INTEGER PRIMARY KEY, item INTEGER)")
        self.now = 1000.0
        self.holdings: list[Holding] = []  # also of owners that vanished or were slow: they may come back late
        self.epochs: dict[str, int] = {}
        self.crashes: Counter[int] = Counter()  # claims of an item in a row that were not settled, or a defect
        self.defects: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.tried: dict[int, float | None] = {}
        self.due: dict[int, float] = {}
        self.doomed: set[int] = set()  # items that a handler gave up, at any time
        self.accepted: set[str] = set()
        self.dropped: set[int] = set()

    @initialize()
    def some_work(self) -> None:
        for number in range(8):
            self.enqueue(LANES[number % 2], number, SESSIONS[number // 3] if number < 6 else None, None)

    @rule(
        lane=st.sampled_from(LANES),
        key=st.integers(0, 40),
        session=st.sampled_from((None, None, *SESSIONS)),
        hold=HOLDS,
    )
    def enqueue(self, lane: str, key: int, session: str | None, hold: float | None) -> None:
        until = None if hold is None else self.now + hold
        with transaction(self.db) as tx:
            added = queue.enqueue(
                tx, QUEUE, lane, str(key), {"n": key}, now=self.now, session_id=session, not_before=until
            )
        assert added == (str(key) not in self.accepted)
        self.accepted.add(str(key))
        if added:
            (item,) = self.ids(f"key = '{key}'")
            self.due[item] = self.now if until is None else until

    @rule(freed=st.sets(st.sampled_from(LANES)))
    def release_items(self, freed: set[str]) -> None:
        held = [
            item
            for lane in freed
            for item in self.ids("state = 'waiting'", lane)
            if self.tried.get(item) is None and self.due[item] > self.now
        ]
        with transaction(self.db) as tx:
            assert queue.release(tx, QUEUE, *freed, now=self.now) == len(held)
        self.due.update(dict.fromkeys(held, self.now))

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 4), lane=st.sampled_from((None, None, *LANES)))
    def claim(self, owner: str, limit: int, lane: str | None) -> None:
        claimable = self.claimable_lanes()
        with transaction(self.db) as tx:
            claim = queue.claim(tx, QUEUE, owner, ttl=TTL, now=self.now, limit=limit, lane=lane)
        self.count_lost()
        if claim is None:
            assert lane not in claimable if lane else not claimable
            return
        assert 1 <= len(claim.items) <= limit
        assert len(claim.items) == 1 or not any(item.is_apart for item in claim.items)
        assert all(item.not_before <= self.now for item in claim.items)
        assert lane in (None, claim.lane)
        assert claim.lane in claimable
        self.hold(Holding(claim.lane, claim.lease, claim))

    def count_lost(self) -> None:
        """Count the losses that a claim has recorded; each restarts a suspect's time."""
        for row in self.db.execute("SELECT id, lost FROM hermes_queue"):
            if row["lost"] > self.lost[row["id"]] and row["lost"] >= MIN_SUSPECT_CRASHES:
                self.due[row["id"]] = self.now
            self.lost[row["id"]] = row["lost"]

    @rule(lane=st.sampled_from(LANES), owner=st.sampled_from(OWNERS))
    def hold_lane(self, lane: str, owner: str) -> None:
        live = self.live(lane)
        with transaction(self.db) as tx:
            lease = lanes.hold_lane(tx, QUEUE, lane, owner, ttl=TTL, now=self.now)
        assert (lease is None) == (live is not None)
        if lease is not None:
            self.hold(Holding(lane, lease))

    def hold(self, holding: Holding) -> None:
        rivals = [other for other in self.holdings if other.lane == holding.lane]
        assert all(other.lease.expires_at <= self.now for other in rivals), "two live owners"
        assert holding.lease.epoch > self.epochs.get(holding.lane, 0), "an epoch came twice"
        self.epochs[holding.lane] = holding.lease.epoch
        for item in holding.claim.items if holding.claim is not None else ():
            assert item.tried_at == self.tried.get(item.id), "what an earlier attempt may have done is told"
            self.tried[item.id] = self.now
            self.crashes[item.id] += 1
        self.holdings.append(holding)

    @rule(seconds=st.sampled_from((0.5, 5.0, 31.0)))
    def advance(self, seconds: float) -> None:
        self.now += seconds

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 4), verdicts=VERDICTS, pause=PAUSES)
    def work(self, owner: str, limit: int, verdicts: list[str], pause: float) -> None:
        """The most common action: a claim that is settled."""
        before = len(self.holdings)
        self.claim(owner, limit, None)
        if len(self.holdings) > before:
            self.finish(self.holdings.pop().claim, [self.outcome(verdict, pause) for verdict in verdicts])

    @precondition(lambda self: self.holdings)
    @rule(data=st.data(), verdicts=VERDICTS, pause=PAUSES)
    def settle(self, data: st.DataObject, verdicts: list[str], pause: float) -> None:
        holding = data.draw(st.sampled_from(self.holdings), "holding")
        if holding.claim is None:
            return
        outcomes = [self.outcome(verdict, pause) for verdict in verdicts]
        if not self.owns(holding):
            self.refuse(lambda: self.finish(holding.claim, outcomes))
        else:
            self.finish(holding.claim, outcomes)
        self.holdings.remove(holding)

    def outcome(self, verdict: str, pause: float) -> ItemOutcome:
        at = self.now + pause
        outcomes: dict[str, ItemOutcome] = {
            "d": Done(),
            "r": Retry(at, "not now"),
            "x": Dead("no good"),
            "f": Defect(at, "it raised"),
            "p": Postponed(at, "too early"),
        }
        return outcomes[verdict]

    def finish(self, claim: Claim | None, outcomes: list[ItemOutcome]) -> None:
        """Effects and settlement, in one transaction; nothing behind a waiting item has an effect."""
        assert claim is not None
        with transaction(self.db) as tx:
            for item, outcome in zip(claim.items, outcomes, strict=False):
                if isinstance(outcome, WAITS) and not self.too_often(item, outcome):
                    break
                if isinstance(outcome, Done):
                    tx.execute("INSERT INTO effects (item) VALUES (?)", (item.id,))
            recorded = queue.settle(tx, claim, outcomes, now=self.now)
        self.remember(claim, outcomes, recorded)

    def too_often(self, item: Item, outcome: ItemOutcome) -> bool:
        return isinstance(outcome, Defect) and self.defects[item.id] + 1 >= MAX_CRASHES

    def remember(self, claim: Claim, outcomes: list[ItemOutcome], recorded: list[ItemOutcome]) -> None:
        """Update the model after items were settled."""
        last: ItemOutcome | None = None  # the first outcome that lets the others wait
        for position, item in enumerate(claim.items):
            outcome = outcomes[position] if position < len(outcomes) else None
            if last is not None and not (isinstance(last, Defect) and isinstance(outcome, Defect)):
                outcome, last = None, last if not isinstance(last, Defect) else Retry(0.0, "nothing counts from here")
            if isinstance(outcome or last, Postponed) and item.id not in self.dropped:
                self.tried[item.id] = item.tried_at
            if outcome is None:
                assert position >= len(recorded)
            elif isinstance(outcome, WAITS) and not self.too_often(item, outcome):
                self.due[item.id], last = outcome.at, outcome
            elif isinstance(outcome, Dead):
                self.doomed.add(item.id)
            self.defects[item.id] += isinstance(outcome, Defect)
            if isinstance(outcome, Retry):
                self.crashes[item.id] = self.defects[item.id] = 0
            elif not isinstance(outcome, Defect):
                self.crashes[item.id] -= 1

    def refuse(self, act: Callable[[], None]) -> None:
        before = dump(self.db)
        with pytest.raises(StaleError):
            act()
        assert dump(self.db) == before

    @precondition(lambda self: self.holdings)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        holding = data.draw(st.sampled_from(self.holdings), "holding")
        if holding.claim is None:
            return
        if not self.owns(holding):
            self.refuse(lambda: self.beat(holding))
        else:
            self.beat(holding)

    def beat(self, holding: Holding) -> None:
        assert holding.claim is not None
        with transaction(self.db) as tx:
            holding.claim = queue.heartbeat(tx, holding.claim, ttl=TTL, now=self.now)
        holding.lease = holding.claim.lease

    @precondition(lambda self: self.holdings)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        holding = data.draw(st.sampled_from(self.holdings), "holding")
        if holding.claim is not None:
            return
        if not self.owns(holding):
            self.refuse(lambda: self.let_go(holding))
        else:
            self.let_go(holding)
        self.holdings.remove(holding)

    def let_go(self, holding: Holding) -> None:
        with transaction(self.db) as tx:
            lanes.release_lane(tx, QUEUE, holding.lane, holding.lease)

    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        dead = self.ids("state = 'dead'")
        if not dead:
            return
        item = data.draw(st.sampled_from(dead), "dead item")
        with transaction(self.db) as tx:
            queue_items.revive(tx, item, now=self.now)
        self.doomed.add(item)
        self.due[item] = self.now
        del self.crashes[item], self.defects[item]

    @rule(session=st.sampled_from(SESSIONS))
    def drop_session(self, session: str) -> None:
        going = self.ids(f"session_id = '{session}'")
        with transaction(self.db) as tx:
            assert queue_items.drop_session(tx, session) == len(going)
        self.dropped |= set(going)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        there = self.ids("1")
        going = data.draw(st.sets(st.sampled_from(there), max_size=3), "items")
        with transaction(self.db) as tx:
            assert queue_items.drop(tx, going) == len(going)
        self.dropped |= going

    def owns(self, holding: Holding) -> bool:
        """Return True if the file still shows the holding's lease as the newest, and check that this agrees with the
        model."""
        row = self.db.execute("SELECT epoch FROM hermes_leases WHERE name = ?", (holding.lease.name,)).fetchone()
        owned = bool(row["epoch"] == holding.lease.epoch)
        assert owned or holding.lease.expires_at <= self.now
        assert not owned or holding.lease.epoch == self.epochs[holding.lane]
        return owned

    def live(self, lane: str) -> Lease | None:
        with transaction(self.db) as tx:
            return leases.holder(tx, f"lane:{QUEUE}:{lane}", now=self.now)

    def ids(self, condition: str, lane: str | None = None) -> list[int]:
        rows = self.db.execute(
            f"SELECT id FROM hermes_queue WHERE {condition} AND (?1 IS NULL OR lane = ?1) ORDER BY id", (lane,)
        )
        return [row["id"] for row in rows]

    def heads(self) -> list[sqlite3.Row]:
        return self.db.execute(
            "SELECT q.*, l.due_at FROM hermes_queue q LEFT JOIN hermes_lanes l USING (queue, lane) "
            "WHERE q.id IN (SELECT min(id) FROM hermes_queue WHERE state = 'waiting' GROUP BY lane)"
        ).fetchall()

    def claimable_lanes(self) -> set[str]:
        return {row["lane"] for row in self.heads() if row["not_before"] <= self.now and self.live(row["lane"]) is None}

    @invariant()
    def no_lane_is_hidden(self) -> None:
        for head in self.heads():
            lease = self.live(head["lane"])
            free_at = lease.expires_at if lease else self.now
            assert head["due_at"] is not None
            assert head["due_at"] <= max(self.now, head["not_before"], free_at)

    @invariant()
    def every_effect_happens_once(self) -> None:
        effects = [row["item"] for row in self.db.execute("SELECT item FROM effects ORDER BY seq")]
        assert len(effects) == len(set(effects))
        assert {*self.ids("state = 'done'")} - self.dropped == {*effects} - self.dropped

    @invariant()
    def what_was_dropped_left_only_its_key(self) -> None:
        assert self.dropped <= {*self.ids("state = 'done' AND payload = 'null' AND session_id IS NULL")}
        assert self.dropped <= {*self.ids("reason IS NULL")}

    @invariant()
    def effects_of_a_lane_are_in_order(self) -> None:
        for lane in LANES:
            rows = self.db.execute(
                "SELECT item FROM effects JOIN hermes_queue ON id = item WHERE lane = ? ORDER BY seq", (lane,)
            )
            straight = [row["item"] for row in rows if row["item"] not in self.doomed]
            assert straight == sorted(straight)

    @invariant()
    def an_item_dies_only_for_a_reason(self) -> None:
        for item in set(self.ids("state = 'dead'")) - self.doomed:
            assert self.defects[item] >= MAX_CRASHES

    @invariant()
    def each_item_is_as_the_model_knows_it(self) -> None:
        for row in self.db.execute("SELECT * FROM hermes_queue"):
            assert row["tried_at"] == self.tried.get(row["id"]), "when it was tried is never forgotten"
            if row["state"] == "waiting":
                assert row["not_before"] == self.due[row["id"]]
                assert row["crashes"] + row["lost"] + row["claimed"] == self.crashes[row["id"]]

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.db.close()
            self.folder.cleanup()

    def drain(self) -> None:
        """Stop the faults: two consumers finish every waiting item."""
        self.now += 100.0
        idle = 0
        while self.ids("state = 'waiting'"):
            with transaction(self.db) as tx:
                claim = queue.claim(tx, QUEUE, OWNERS[idle % 2], ttl=TTL, now=self.now, limit=3)
            if claim is None:
                idle += 1
                assert idle < 4, "something waits, but nobody can take it"
                self.now += TTL + 10.0
                continue
            self.hold(Holding(claim.lane, claim.lease, claim))
            self.finish(claim, [Done()] * len(claim.items))
            self.holdings.pop()
        self.every_effect_happens_once()
        self.effects_of_a_lane_are_in_order()


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.contract("2.3", "P1", "P2")
def test_every_item_has_its_effect_once_and_in_order_whatever_happens() -> None:
    examples = scale(30, 1500)
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(max_examples=examples, stateful_step_count=40),
    )
