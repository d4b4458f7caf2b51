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

from hermes.db import leases, queue
from hermes.db.leases import Lease
from hermes.db.queue import Claim, Dead, Done, Outcome, Retry
from hermes.errors import StaleError
from tests.db.files import dump, make_file, transaction
from tests.scale import scale

QUEUE = "work"
LANES = ("a", "b", "c")
OWNERS = ("p1", "p2", "p3")
SESSIONS = ("s1", "s2")
TTL = 30.0
VERDICTS = st.lists(st.sampled_from("ddrx"), min_size=1, max_size=4)
PAUSES = st.sampled_from((0.0, 8.0))


@dataclass
class Holding:
    """A lane someone believes to hold, with the items claimed, if any."""

    lane: str
    lease: Lease
    claim: Claim | None = None


class QueueMachine(RuleBasedStateMachine):
    """Every rule is something a process may do; effects are rows written in the transaction of `settle`."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.db = make_file(Path(self.folder.name) / "q.db")
        self.db.execute("CREATE TABLE effects (seq INTEGER PRIMARY KEY, item INTEGER)")
        self.now = 1000.0
        self.holdings: list[Holding] = []  # also of owners that vanished or were slow: they may come back late
        self.epochs: dict[str, int] = {}
        self.unsettled: Counter[int] = Counter()  # how often an item was claimed and not settled
        self.doomed: set[int] = set()  # items that a handler gave up, at any time
        self.accepted: set[str] = set()
        self.dropped: set[int] = set()

    @initialize()
    def some_work(self) -> None:
        for number in range(8):
            self.enqueue(LANES[number % 2], number, SESSIONS[number // 3] if number < 6 else None)

    @rule(lane=st.sampled_from(LANES), key=st.integers(0, 40), session=st.sampled_from((None, None, *SESSIONS)))
    def enqueue(self, lane: str, key: int, session: str | None) -> None:
        with transaction(self.db) as tx:
            added = queue.enqueue(tx, QUEUE, lane, str(key), {"n": key}, now=self.now, session_id=session)
        assert added == (str(key) not in self.accepted)
        self.accepted.add(str(key))

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 4))
    def claim(self, owner: str, limit: int) -> None:
        claimable = self.claimable_lanes()
        with transaction(self.db) as tx:
            claim = queue.claim(tx, QUEUE, owner, ttl=TTL, now=self.now, limit=limit)
        if claim is None:
            assert not claimable
            return
        assert 1 <= len(claim.items) <= limit
        assert all(item.not_before <= self.now for item in claim.items)
        assert claim.lane in claimable or self.buried_head(claim)
        self.hold(Holding(claim.lane, claim.lease, claim))

    def buried_head(self, claim: Claim) -> bool:
        """Whether the lane became claimable because its head was put aside by this very claim."""
        return any(self.unsettled[item] >= queue.MAX_CRASHES for item in self.ids("state = 'dead'", claim.lane))

    @rule(lane=st.sampled_from(LANES), owner=st.sampled_from(OWNERS))
    def hold_lane(self, lane: str, owner: str) -> None:
        live = self.live(lane)
        with transaction(self.db) as tx:
            lease = queue.hold_lane(tx, QUEUE, lane, owner, ttl=TTL, now=self.now)
        assert (lease is None) == (live is not None)
        if lease is not None:
            self.hold(Holding(lane, lease))

    def hold(self, holding: Holding) -> None:
        rivals = [other for other in self.holdings if other.lane == holding.lane]
        assert all(other.lease.expires_at <= self.now for other in rivals), "two live owners"
        assert holding.lease.epoch > self.epochs.get(holding.lane, 0), "an epoch came twice"
        self.epochs[holding.lane] = holding.lease.epoch
        if holding.claim is not None:
            self.unsettled.update(item.id for item in holding.claim.items)
        self.holdings.append(holding)

    @rule(seconds=st.sampled_from((0.5, 5.0, 31.0)))
    def advance(self, seconds: float) -> None:
        self.now += seconds

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 4), verdicts=VERDICTS, pause=PAUSES)
    def work(self, owner: str, limit: int, verdicts: list[str], pause: float) -> None:
        """What mostly happens: a claim that is settled."""
        before = len(self.holdings)
        self.claim(owner, limit)
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

    def outcome(self, verdict: str, pause: float) -> Outcome:
        outcomes: dict[str, Outcome] = {"d": Done(), "r": Retry(self.now + pause, "not now"), "x": Dead("no good")}
        return outcomes[verdict]

    def finish(self, claim: Claim | None, outcomes: list[Outcome]) -> None:
        """Effects and settlement, in one transaction; nothing after a Retry has an effect."""
        assert claim is not None
        given_up: set[int] = set()
        with transaction(self.db) as tx:
            for item, outcome in zip(claim.items, outcomes, strict=False):
                if isinstance(outcome, Retry):
                    break
                if isinstance(outcome, Done):
                    tx.execute("INSERT INTO effects (item) VALUES (?)", (item.id,))
                else:
                    given_up.add(item.id)
            queue.settle(tx, claim, outcomes, now=self.now)
        self.doomed |= given_up
        self.unsettled.subtract(item.id for item in claim.items)

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
            queue.release_lane(tx, QUEUE, holding.lane, holding.lease)

    @rule(data=st.data())
    def revive(self, data: st.DataObject) -> None:
        dead = self.ids("state = 'dead'")
        if not dead:
            return
        item = data.draw(st.sampled_from(dead), "dead item")
        with transaction(self.db) as tx:
            queue.revive(tx, item, now=self.now)
        self.doomed.add(item)
        del self.unsettled[item]

    @rule(session=st.sampled_from(SESSIONS))
    def drop_session(self, session: str) -> None:
        going = self.ids(f"session_id = '{session}'")
        with transaction(self.db) as tx:
            assert queue.drop_session(tx, session) == len(going)
        self.dropped |= set(going)

    def owns(self, holding: Holding) -> bool:
        """What the file says, as far as it agrees with what we know: a live lease is owned, a followed one is not."""
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
            assert self.unsettled[item] >= queue.MAX_CRASHES

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.db.close()
            self.folder.cleanup()

    def drain(self) -> None:
        """The faults stop: two consumers finish everything that waits."""
        self.now += TTL + 10.0
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
    examples = scale(100, 1500)
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(max_examples=examples, stateful_step_count=40, deadline=None, derandomize=True),
    )
