"""The queue worker on a real file, under a clock that the test moves."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from hermes.db import lanes, queue, queue_items
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.db.queue import (
    GIVEN_UP,
    MAX_CRASHES,
    MIN_SPLIT_LOSSES,
    MIN_SUSPECT_CRASHES,
    Claim,
    Dead,
    Done,
    Item,
    ItemOutcome,
    Postponed,
    Retry,
)
from hermes.db.queue_items import Isolation
from hermes.db.worker import QueueWorker, Work, WorkerOptions
from hermes.errors import StaleError, StoreBusyError
from tests.db.files import make_file, transaction
from tests.db.hand_clock import HandClock

T = TypeVar("T")
Handle = Callable[[Claim], Awaitable[Sequence[ItemOutcome] | None]]


class File:
    """The file without the engine's threads. A write takes one round of the event loop, and may be made to fail or
    wait."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.failing = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, run: Callable[[Tx], T], /) -> T:
        if self.failing:
            raise StoreBusyError("the file is locked")
        with transaction(self.db) as tx:
            result = run(tx)
        await self.gate.wait()
        return result


@dataclass
class Told(Work):
    """Handles items as instructed and remembers what it saw."""

    act: Handle
    keys: list[list[str]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    heard: list[ItemOutcome] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def handle(self, claimed: Claim) -> Sequence[ItemOutcome] | None:
        self.keys.append([item.key for item in claimed.items])
        self.items += claimed.items
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self.act(claimed)
        finally:
            self.at_once -= 1

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        for item, outcome in zip(claimed.items, recorded, strict=False):
            if isinstance(outcome, Done):
                tx.execute("INSERT INTO effects VALUES (?, ?)", (claimed.lane, item.key))

    def settled(self, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        self.heard += recorded


async def all_done(claimed: Claim) -> Sequence[ItemOutcome]:
    return [Done()] * len(claimed.items)


class Bench:
    """A file, a clock, and the workers that use them."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.file = File(db)
        self.clock = HandClock()
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, lane: str, *keys: str, until: float | None = None, name: str = "work") -> None:
        with transaction(self.file.db) as tx:
            for key in keys:
                assert queue.enqueue(tx, name, lane, key, {}, now=self.clock.now(), not_before=until)

    def worker(
        self,
        work: Work,
        *,
        batch: int = 1,
        at_once: int = 8,
        owner: str | None = None,
        name: str = "work",
        isolation: Isolation | None = None,
    ) -> QueueWorker:
        return QueueWorker(
            self.file,
            self.clock,
            name,
            work,
            owner=owner or new_owner(),
            options=WorkerOptions(batch=batch, at_once=at_once),
            chance=lambda: 0.0,
            wake=asyncio.Event(),
            isolation=isolation,
        )

    def start(self, worker: QueueWorker) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(worker.run()))
        return self.tasks[-1]

    def keys(self, state: queue.ItemState) -> list[str]:
        return [item.key for item in queue_items.items(self.file.db, "work", state)]

    def effects(self, lane: str | None = None) -> list[str]:
        rows = self.file.db.execute("SELECT key FROM effects WHERE ?1 IS NULL OR lane = ?1 ORDER BY rowid", (lane,))
        return [row["key"] for row in rows]

    async def stop(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    connection = make_file(tmp_path / "q.db")
    connection.execute("CREATE TABLE effects (lane TEXT, key TEXT)")
    made = Bench(connection)
    yield made
    for task in made.tasks:
        await made.stop(task)
    connection.close()


@pytest.mark.contract("2.3")
async def test_lanes_are_handled_side_by_side_and_each_in_order(bench: Bench) -> None:
    async def slowly(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep(10.0)
        return await all_done(claimed)

    for lane in "abc":
        bench.add(lane, f"{lane}1", f"{lane}2")
    work = Told(slowly)
    bench.start(bench.worker(work, at_once=2))
    await bench.clock.pass_time(25.0)
    assert work.most_at_once == 2
    assert bench.effects() == ["a1", "b1", "c1", "a2"]
    await bench.clock.pass_time(10.0)
    assert sorted(bench.effects()) == ["a1", "a2", "b1", "b2", "c1", "c2"]


async def test_new_items_are_handled_at_once_if_the_worker_is_woken_else_soon(bench: Bench) -> None:
    worker = bench.worker(Told(all_done))
    bench.start(worker)
    await bench.clock.pass_time()
    bench.add("a", "woken")
    worker.wake.set()
    await bench.clock.pass_time()
    assert bench.effects() == ["woken"]
    bench.add("a", "polled")
    await bench.clock.pass_time()
    assert bench.effects() == ["woken"]
    await bench.clock.pass_time(1.0)
    assert bench.effects() == ["woken", "polled"]


async def test_items_that_arrive_while_gathering_are_handled_together(bench: Bench) -> None:
    class Gathering(Told):
        async def gather(self) -> None:
            await bench.clock.sleep(5.0)

    work = Gathering(all_done)
    worker = bench.worker(work, batch=10)
    bench.start(worker)
    await bench.clock.pass_time()
    bench.add("a", "first")
    worker.wake.set()
    await bench.clock.pass_time(2.0)
    bench.add("a", "second")
    await bench.clock.pass_time(5.0)
    assert work.keys == [["first", "second"]]
    bench.add("a", "third")
    asked = asyncio.create_task(worker.run_lane("a", bench.clock.now() + 1.0))
    await bench.clock.pass_time()
    assert await asked, "who waits for a lane does not wait for more to come"


async def test_items_without_an_outcome_come_again(bench: Bench) -> None:
    async def one_by_one(claimed: Claim) -> Sequence[ItemOutcome]:
        return [Done()]

    bench.add("a", "one", "two", "three")
    work = Told(one_by_one)
    bench.start(bench.worker(work, batch=50))
    await bench.clock.pass_time()
    assert work.keys == [["one", "two", "three"], ["two", "three"], ["three"]]
    assert [item.tried_at for item in work.items] == [None, None, None, 1000.0, 1000.0, 1000.0]
    assert bench.effects() == ["one", "two", "three"]


async def test_raising_handler_gets_few_retries_and_only_the_culprit_becomes_dead(bench: Bench) -> None:
    tries: list[float] = []

    async def refuse_poison(claimed: Claim) -> Sequence[ItemOutcome]:
        if "poison" in [item.key for item in claimed.items]:
            tries.append(bench.clock.now())
            raise RuntimeError("a defect")
        return await all_done(claimed)

    bench.add("a", "one", "poison", "three")
    work = Told(refuse_poison)
    bench.start(bench.worker(work, batch=50))
    await bench.clock.pass_time(600.0)
    pauses = [round(after - before) for before, after in pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 1
    assert len(tries) == MAX_CRASHES
    assert bench.effects() == ["one", "three"]
    assert Dead("RuntimeError: a defect") in work.heard
    assert [item.reason for item in queue_items.items(bench.file.db, "work", "dead")] == ["RuntimeError: a defect"]


async def test_store_errors_in_a_handler_are_retried_without_limit(bench: Bench) -> None:
    tries: list[float] = []

    async def fail_often(claimed: Claim) -> Sequence[ItemOutcome]:
        tries.append(bench.clock.now())
        if len(tries) <= 3 * MAX_CRASHES:
            raise StoreBusyError("locked")
        return await all_done(claimed)

    bench.add("a", "one")
    bench.start(bench.worker(Told(fail_often)))
    await bench.clock.pass_time(3600.0)
    assert bench.effects() == ["one"]
    assert max(after - before for before, after in pairwise(tries)) <= 61.0, "the pauses grow to a minute"


async def test_unreadable_queue_is_reported_and_retried(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.add("a", "one")
    bench.file.failing = True
    bench.start(bench.worker(Told(all_done)))
    await bench.clock.pass_time(5.0)
    assert "the queue cannot be read: the file is locked" in caplog.text
    bench.file.failing = False
    await bench.clock.pass_time(1.0)
    assert bench.effects() == ["one"]


@pytest.mark.contract("2.4")
async def test_items_delayed_while_the_clock_was_ahead_do_not_wait_for_it(bench: Bench) -> None:
    async def put_off(claimed: Claim) -> Sequence[ItemOutcome]:
        return [Retry(bench.clock.now() + 60.0, "not yet")]

    bench.clock = HandClock(1000.0 + 86_400.0)
    bench.add("a", "tried", "behind it")
    ahead = bench.start(bench.worker(Told(put_off)))
    await bench.clock.pass_time(1.0)
    await bench.stop(ahead)
    bench.add("b", "queued")
    bench.clock = HandClock(1000.0)
    bench.add("c", "held", until=1600.0)
    bench.start(bench.worker(Told(all_done)))
    await bench.clock.pass_time(5.0)
    assert sorted(bench.effects()) == ["behind it", "queued", "tried"]
    assert bench.keys("waiting") == ["held"], "what is held by the clock as it is stays so"


@pytest.mark.contract("2.4")
async def test_a_clock_that_is_set_back_prolongs_no_pause_and_no_wait(bench: Bench) -> None:
    worker = bench.worker(Told(all_done))
    bench.start(worker)
    await bench.clock.pass_time(5.0)
    bench.add("a", "one")
    worker.pause(bench.clock.now() + 15.0)
    bench.clock.set_back(600.0)
    bench.add("a", "two")
    await bench.clock.pass_time(2.0)
    assert bench.effects() == ["one", "two"]


@pytest.mark.contract("2.3")
async def test_slow_handler_keeps_its_lane(bench: Bench) -> None:
    async def slowly(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep(300.0)
        return await all_done(claimed)

    bench.add("a", "one")
    first, second = Told(slowly), Told(slowly)
    for work in (first, second):
        bench.start(bench.worker(work))
    await bench.clock.pass_time(302.0)
    assert (len(first.keys), len(second.keys)) == (1, 0)
    assert bench.effects() == ["one"]


@pytest.mark.contract("P2")
async def test_outcome_of_a_lost_lane_is_refused_and_the_worker_continues(bench: Bench) -> None:
    async def slowly(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep(5.0)
        return await all_done(claimed)

    bench.add("a", "one")
    late, prompt = Told(slowly), Told(all_done)
    running = bench.start(bench.worker(late))
    await bench.clock.pass_time()
    with transaction(bench.file.db) as tx:
        lanes.revoke_lane(tx, "work", "a")
    await bench.stop(running)
    bench.start(bench.worker(prompt))
    await bench.clock.pass_time(10.0)
    assert bench.effects() == ["one"]
    assert late.heard == []


async def test_handler_that_settled_by_itself_is_left_alone(bench: Bench) -> None:
    async def settle_here(claimed: Claim) -> None:
        with transaction(bench.file.db) as tx:
            queue.settle(tx, claimed, [Done("mine")], now=bench.clock.now())

    bench.add("a", "one", "two")
    work = Told(settle_here)
    bench.start(bench.worker(work))
    await bench.clock.pass_time()
    assert bench.keys("done") == ["one", "two"]
    assert work.heard == []


async def test_lane_taken_while_the_worker_is_being_cancelled_is_given_back_as_never_tried(bench: Bench) -> None:
    work = Told(all_done)
    running = bench.start(bench.worker(work))
    await bench.clock.pass_time()
    bench.add("a", "one")
    bench.file.gate.clear()
    await bench.clock.pass_time(1.0)
    running.cancel()
    await bench.clock.pass_time()
    bench.file.gate.set()
    await asyncio.wait({running})
    assert work.keys == []
    bench.start(bench.worker(work))
    await bench.clock.pass_time()
    assert [item.tried_at for item in work.items] == [None]


async def test_lane_whose_handler_had_no_time_to_begin_is_given_back(bench: Bench) -> None:
    async def wait_for_ever(claimed: Claim) -> Sequence[ItemOutcome]:
        await asyncio.Event().wait()
        return []

    bench.add("a", "one")
    worker = bench.worker(Told(wait_for_ever))
    await worker.finish(0.0)
    await worker.drain(0.0)
    assert await bench.worker(Told(all_done)).run_lane("a", 1005.0)


@pytest.mark.contract("P1")
async def test_drain_lets_handlers_finish_and_returns_the_rest(bench: Bench) -> None:
    async def by_lane(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep({"quick": 5.0, "slow": 500.0}[claimed.lane])
        return await all_done(claimed)

    for lane in ("quick", "slow"):
        bench.add(lane, lane)
    worker = bench.worker(Told(by_lane))
    running = bench.start(worker)
    await bench.clock.pass_time(1.0)
    await bench.stop(running)
    draining = asyncio.create_task(worker.drain(20.0))
    await bench.clock.pass_time(19.0)
    assert not draining.done()
    await bench.clock.pass_time(1.0)
    assert draining.done()
    assert bench.effects() == ["quick"]
    again = Told(all_done)
    bench.start(bench.worker(again))
    await bench.clock.pass_time()
    assert [(item.key, item.attempts, item.tried_at) for item in again.items] == [("slow", 1, 1000.0)]


async def test_outcome_that_is_being_recorded_when_the_drain_ends_is_recorded(bench: Bench) -> None:
    bench.add("a", "one")
    work = Told(all_done)
    worker = bench.worker(work)
    running = bench.start(worker)
    await bench.clock.pass_time()
    bench.add("a", "two")

    async def close_the_gate(claimed: Claim) -> Sequence[ItemOutcome]:
        bench.file.gate.clear()
        return [Done()]

    work.act = close_the_gate
    worker.wake.set()
    await bench.clock.pass_time()
    await bench.stop(running)
    draining = asyncio.create_task(worker.drain(0.0))
    await bench.clock.pass_time()
    bench.file.gate.set()
    await draining
    assert len(work.heard) == 2
    assert bench.effects() == ["one", "two"]


async def test_finish_handles_all_that_is_due_and_nothing_else(bench: Bench) -> None:
    async def slowly(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep(1.0)
        return await all_done(claimed)

    bench.add("a", *(f"a{number}" for number in range(5)))
    bench.add("b", "b0")
    bench.add("c", "held", until=2000.0)
    finishing = asyncio.create_task(bench.worker(Told(slowly)).finish(60.0))
    await bench.clock.pass_time(5.0)
    assert finishing.done()
    assert sorted(bench.effects()) == ["a0", "a1", "a2", "a3", "a4", "b0"]


async def test_finish_handles_items_behind_one_that_ends_while_it_looks(bench: Bench) -> None:
    answer = asyncio.Event()

    async def wait_for_it(claimed: Claim) -> Sequence[ItemOutcome]:
        await answer.wait()
        return await all_done(claimed)

    bench.add("a", "one", "two")
    worker = bench.worker(Told(wait_for_it))
    running = bench.start(worker)
    await bench.clock.pass_time()
    await bench.stop(running)
    opened, looking = bench.file.gate, asyncio.Event()
    bench.file.gate = looking
    finishing = asyncio.create_task(worker.finish(60.0))
    await bench.clock.pass_time()  # it has found the lane held, and does not know that yet
    bench.file.gate = opened
    answer.set()
    await bench.clock.pass_time()
    looking.set()
    await bench.clock.pass_time()
    assert finishing.done()
    assert bench.effects() == ["one", "two"]


async def test_pause_holds_all_lanes_until_it_is_over(bench: Bench) -> None:
    async def find_it_down(claimed: Claim) -> Sequence[ItemOutcome]:
        if bench.clock.now() < 1090.0:
            worker.pause(bench.clock.now() + 30.0)
            return [Retry(bench.clock.now(), "the server is down")]
        return await all_done(claimed)

    work = Told(find_it_down)
    worker = bench.worker(work, at_once=1)
    for lane in "abcdef":
        bench.add(lane, lane)
    bench.start(worker)
    await bench.clock.pass_time(89.0)
    assert len(work.keys) == 3
    assert not await worker.run_lane("a", bench.clock.now())
    await bench.clock.pass_time(10.0)
    assert sorted(bench.effects()) == [*"abcdef"]


async def test_a_lane_is_run_now_ahead_of_others_until_nothing_waits_in_it(bench: Bench) -> None:
    for lane in "abc":
        bench.add(lane, *(f"{lane}{number}" for number in range(4)))
    worker = bench.worker(Told(all_done), batch=3)
    assert await worker.run_lane("b", 1005.0)
    assert bench.effects() == ["b0", "b1", "b2", "b3"]
    assert await worker.run_lane("unknown", 1005.0)


async def test_lane_that_a_turn_asks_for_is_not_handled_in_the_name_of_that_turn(bench: Bench) -> None:
    turn = ContextVar("turn", default="none")
    seen: list[str] = []

    async def look(claimed: Claim) -> Sequence[ItemOutcome]:
        seen.append(turn.get())
        return await all_done(claimed)

    bench.add("a", "one")
    worker = bench.worker(Told(look))
    turn.set("a turn")
    assert await worker.run_lane("a", 1005.0)
    assert seen == ["none"]


async def test_waiting_for_a_lane_ends_at_the_deadline_while_the_handler_continues(bench: Bench) -> None:
    async def slowly(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep(20.0)
        return await all_done(claimed)

    bench.add("a", "one")
    worker = bench.worker(Told(slowly))
    waiting = asyncio.create_task(worker.run_lane("a", 1005.0))
    await bench.clock.pass_time(4.9)
    assert not waiting.done()
    await bench.clock.pass_time(0.1)
    assert waiting.result() is False
    await bench.clock.pass_time(15.0)
    assert bench.effects() == ["one"]


async def test_caller_waits_for_a_lane_that_is_already_running(bench: Bench) -> None:
    async def slowly(claimed: Claim) -> Sequence[ItemOutcome]:
        await bench.clock.sleep(2.0)
        return await all_done(claimed)

    bench.add("a", "one")
    here, elsewhere = bench.worker(Told(slowly)), bench.worker(Told(slowly))
    bench.start(here)
    await bench.clock.pass_time()
    asking = [asyncio.create_task(worker.run_lane("a", 1005.0)) for worker in (here, elsewhere)]
    await bench.clock.pass_time(1.9)
    assert not any(task.done() for task in asking)
    await bench.clock.pass_time(0.5)
    assert [task.result() for task in asking] == [True, True]
    assert bench.effects() == ["one"]


async def test_two_callers_of_one_lane_both_return_when_it_is_done(bench: Bench) -> None:
    free = asyncio.Event()

    async def when_free(claimed: Claim) -> Sequence[ItemOutcome]:
        await free.wait()
        return await all_done(claimed)

    bench.add("a", "one")
    worker = bench.worker(Told(when_free))
    asking = [asyncio.create_task(worker.run_lane("a", 1005.0)) for _ in range(2)]
    await asyncio.sleep(0.05)
    free.set()
    async with asyncio.timeout(10):  # nobody moves the clock
        assert await asyncio.gather(*asking) == [True, True]


async def test_caller_of_a_lane_that_is_due_too_late_returns_at_once(bench: Bench) -> None:
    bench.add("a", "held", until=2000.0)
    bench.add("b", "soon", until=1002.0)
    worker = bench.worker(Told(all_done))
    assert not await worker.run_lane("a", 1005.0)
    soon = asyncio.create_task(worker.run_lane("b", 1005.0))
    await bench.clock.pass_time(2.0)
    assert soon.result()


async def test_lanes_of_an_owner_that_is_gone_are_handled_at_once(bench: Bench) -> None:
    bench.add("a", "one")
    ours = new_owner()
    gone = f"{ours.rpartition(':')[0]}:00000000"
    with transaction(bench.file.db) as tx:
        assert queue.claim(tx, "work", gone, ttl=3600.0, now=1000.0)
    bench.start(bench.worker(Told(all_done)))
    await bench.clock.pass_time()
    assert bench.effects() == ["one"]


async def test_exception_in_the_settling_hook_does_not_end_the_worker(bench: Bench) -> None:
    class Clumsy(Told):
        def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
            super().settling(tx, claimed, recorded)
            if claimed.lane == "a" and len(self.keys) == 1:
                raise RuntimeError("a defect")

    bench.add("a", "one")
    bench.start(bench.worker(Clumsy(all_done)))
    await bench.clock.pass_time()
    bench.add("b", "two")
    await bench.clock.pass_time(29.0)
    assert bench.effects() == ["two"], "the outcome was not recorded in part"
    await bench.clock.pass_time(2.0)
    assert bench.effects() == ["two", "one"], "its lease has run out"


@pytest.mark.contract("2.3", "P1", "P2")
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_handlers_do_each_item_has_its_effect_once_and_in_order(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)

    async def anything(claimed: Claim) -> Sequence[ItemOutcome]:
        now = bench.clock.now()
        await bench.clock.sleep(chance.choice((0.0, 0.5, 45.0)))
        match chance.randrange(6):
            case 0:
                raise StaleError("it seems so")
            case 1:
                raise StoreBusyError("locked")
            case 2:
                return [Done(), Retry(now + 5.0, "later"), Done()]
            case 3:
                return [Postponed(now + 2.0)]
            case _:
                return [Done()] * chance.randrange(5)

    for number in range(30):
        bench.add("abc"[number % 3], f"{number:02}", until=chance.choice((None, 1000.0 + chance.randrange(200))))
    for _ in range(2):
        bench.start(bench.worker(Told(anything), batch=4, at_once=2))
    for _ in range(100):
        if not bench.keys("waiting"):
            break
        await bench.clock.pass_time(50.0)
    given_up = queue_items.items(bench.file.db, "work", "dead")
    assert all(item.reason == GIVEN_UP for item in given_up)
    left = {f"{number:02}" for number in range(30)} - {item.key for item in given_up}
    for place, lane in enumerate("abc"):
        assert bench.effects(lane) == [f"{number:02}" for number in range(place, 30, 3) if f"{number:02}" in left]


class Crashing(Work):
    """Simulate work that ends the process: a running item is never settled."""

    def __init__(self, bench: Bench, poison: str = "", *, seconds: float = 0.0) -> None:
        self.bench, self.poison, self.seconds = bench, poison, seconds
        self.running: set[str] = set()
        self.crashed = asyncio.Event()
        self.company: list[set[str]] = []
        """The items that were running at each crash that the poison item caused."""
        self.done: list[str] = []
        self.dead: list[str] = []

    async def handle(self, claimed: Claim) -> Sequence[ItemOutcome]:
        keys = {item.key for item in claimed.items}
        self.running |= keys
        try:
            await self.bench.clock.sleep(self.seconds)
            if self.poison in keys:
                self.company.append(set(self.running))
                self.crashed.set()
            if self.crashed.is_set():
                await asyncio.Event().wait()
        finally:
            self.running -= keys
        self.done += keys
        return await all_done(claimed)

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        dead = zip(claimed.items, recorded, strict=False)
        self.dead += [item.key for item, outcome in dead if isinstance(outcome, Dead)]

    async def live(self, *workers: QueueWorker, seconds: float) -> None:
        """Run the workers of one process for this long, or until it crashes; then end it."""
        tasks = [self.bench.start(worker) for worker in workers]
        for _ in range(int(seconds * 2)):
            if not self.crashed.is_set():
                await self.bench.clock.pass_time(0.5)
        self.bench.file.failing = True
        for task in tasks:
            await self.bench.stop(task)
        for worker in workers:
            await worker.drain(0.0)
        self.bench.file.failing = False
        self.crashed.clear()
        await self.bench.clock.pass_time(31.0)  # its leases run out


@pytest.mark.contract("2.1", "P1")
async def test_items_lost_in_crashes_that_they_did_not_cause_are_all_handled(bench: Bench) -> None:
    lanes = [f"lane{number}" for number in range(24)]
    for lane in lanes:
        bench.add(lane, f"{lane}-1", f"{lane}-2")
    work = Crashing(bench, seconds=5.0)
    for _ in range(40):
        await work.live(bench.worker(work, batch=50), seconds=2.0)
    assert work.done == []
    assert bench.keys("dead") == []
    bench.start(bench.worker(work, batch=50))
    await bench.clock.pass_time(1200.0)
    assert sorted(work.done) == sorted(f"{lane}-{number}" for lane in lanes for number in (1, 2))


@pytest.mark.contract("2.1", "P1")
async def test_item_that_ends_the_process_is_dead_after_it_was_alone_five_times(bench: Bench) -> None:
    bench.add("p", "before", "poison", "after")
    for number in range(24):
        bench.add(f"lane{number}", f"good{number}")
    work = Crashing(bench, "poison", seconds=1.0)
    for _ in range(40):
        await work.live(bench.worker(work, batch=50, at_once=50), seconds=60.0)
        if bench.keys("dead"):
            break
    await work.live(bench.worker(work, batch=50, at_once=50), seconds=300.0)
    assert work.dead == ["poison"]
    assert [item.reason for item in queue_items.items(bench.file.db, "work", "dead")] == [GIVEN_UP]
    assert all(len(company) > 1 for company in work.company[:MIN_SUSPECT_CRASHES])
    assert all(company <= {"before", "poison", "after"} for company in work.company[MIN_SUSPECT_CRASHES:])
    alone = work.company[MIN_SPLIT_LOSSES:]  # once its process may have ended for another reason
    assert alone == [{"poison"}] * len(alone)
    assert MAX_CRASHES - 1 <= len(alone) <= MAX_CRASHES
    assert sorted(work.done) == sorted(["before", "after", *(f"good{number}" for number in range(24))])


def suspect(bench: Bench, lane: str) -> None:
    """Make the items of a lane look as if they had been lost often."""
    with transaction(bench.file.db) as tx:
        tx.execute("UPDATE hermes_queue SET lost = ? WHERE lane = ?", (MIN_SUSPECT_CRASHES, lane))


@pytest.mark.contract("2.1", "2.3")
async def test_lanes_of_all_workers_of_a_process_wait_for_one_that_is_alone(bench: Bench) -> None:
    bench.add("suspect", "slow")
    suspect(bench, "suspect")
    work, isolation = Crashing(bench, seconds=20.0), Isolation()
    first = bench.worker(work, isolation=isolation)
    second = bench.worker(work, isolation=isolation, name="other")
    bench.start(first)
    bench.start(second)
    await bench.clock.pass_time(1.0)
    assert work.running == {"slow"}
    bench.add("free", "later")
    bench.add("free", "elsewhere", name="other")
    await bench.clock.pass_time(10.0)
    assert work.running == {"slow"}
    await bench.clock.pass_time(10.0)
    assert work.running == {"later", "elsewhere"}


@pytest.mark.contract("2.1", "2.3")
async def test_suspect_gets_its_turn_between_lanes_that_never_end(bench: Bench) -> None:
    for number in range(60):
        bench.add(f"busy{number % 3}", f"busy{number}")
    bench.add("suspect", "innocent")
    suspect(bench, "suspect")
    work = Crashing(bench, seconds=3.0)
    bench.start(bench.worker(work))
    await bench.clock.pass_time(30.0)
    assert "innocent" in work.done
    assert len(work.done) > 5, "the other lanes went first, and go on"
    await bench.clock.pass_time(60.0)
    assert len(work.done) == 61


@pytest.mark.contract("2.1", "2.3")
async def test_other_lanes_wait_at_most_a_minute_and_later_crashes_do_not_count(bench: Bench) -> None:
    bench.add("suspect", "slow")
    suspect(bench, "suspect")
    work = Crashing(bench, seconds=90.0)
    bench.start(bench.worker(work))
    await bench.clock.pass_time(1.0)
    bench.add("free", "other")

    def crashes() -> int:
        [row] = bench.file.db.execute("SELECT crashes FROM hermes_queue WHERE key = 'slow'").fetchall()
        return int(row["crashes"])

    await bench.clock.pass_time(58.0)
    assert (work.running, crashes()) == ({"slow"}, 1)
    await bench.clock.pass_time(3.0)
    assert (work.running, crashes()) == ({"slow", "other"}, 0)
