"""Reads in lanes: a slow read moves aside, and one that takes too long or is abandoned is stopped."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from hermes.errors import StoreStoppedError
from hermes.memory_server.db.sqlite import LANES, SqliteFile
from hermes.sqlite.reading import check_reading
from hermes.sqlite.scheduling import ScheduledClient, Threads, scheduled_client
from tests.sqlite.databases import Tx, run

ENDLESS = "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n) SELECT count(*) FROM n"
"""A query that never ends by itself."""


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    database = SqliteFile(tmp_path / "e.db", read_seconds=250.0)
    await database.write(lambda tx: run(tx, "CREATE TABLE t (v TEXT)"))
    yield database
    await database.close()


def count(tx: Tx) -> list[object]:
    return run(tx, "SELECT count(*) FROM t")


async def test_read_that_never_ends_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    database = SqliteFile(tmp_path / "e.db", read_seconds=0.5)
    with pytest.raises(StoreStoppedError, match=r"longer than 0\.5 seconds"):
        await database.read(lambda tx: run(tx, ENDLESS))
    await database.close()


async def test_slow_reads_keep_no_other_read_waiting(db: SqliteFile) -> None:
    slow = [asyncio.create_task(db.read(lambda tx: run(tx, ENDLESS))) for _ in range(20)]
    await asyncio.sleep(0)
    for _ in range(30):
        assert await db.read(count) == [(0,)]
        assert not any(task.done() for task in slow), "they were still at it"
        await db.write(lambda tx: run(tx, "SELECT 1"))
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)


async def test_abandoned_read_is_stopped(db: SqliteFile) -> None:
    reading = asyncio.create_task(db.read(lambda tx: run(tx, ENDLESS)))
    await asyncio.sleep(0.01)  # it is under way, or never begins
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    async with asyncio.timeout(100):  # its deadline is later
        await db.close()


async def test_read_that_exceeds_its_lane_is_restarted_and_answered(db: SqliteFile) -> None:
    threads: list[int] = []
    limit = LANES[0].seconds
    assert limit is not None

    def work(tx: Tx) -> list[object]:
        threads.append(threading.get_ident())
        end = time.thread_time() + 2 * limit
        while time.thread_time() < end:
            check_reading()
        return count(tx)

    assert await db.read(work) == [(0,)]
    assert len(set(threads)) == len(threads) == 2


async def test_connection_of_a_stopped_read_reads_on(db: SqliteFile) -> None:
    for _ in range(3):
        reading = asyncio.create_task(db.read(lambda tx: run(tx, ENDLESS)))
        await asyncio.sleep(0.02)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    found = await asyncio.gather(*(db.read(count) for _ in range(20)))
    assert found == [[(0,)]] * 20


@pytest.mark.contract("9.15")
async def test_reads_of_light_clients_come_before_those_of_heavy_ones(db: SqliteFile) -> None:
    taken, free = threading.Event(), threading.Event()
    order: list[str] = []

    def take(_: Tx) -> None:
        taken.set()
        free.wait(200)

    async def ask(name: str, usual: float) -> None:
        who = ScheduledClient()
        who.took(usual)
        scheduled_client.set(who)
        await db.read(lambda _: order.append(name))

    first = asyncio.create_task(db.read(take))
    assert await asyncio.to_thread(taken.wait, 60)
    waiting = [asyncio.create_task(ask(*who)) for who in (("most", 9.0), ("more", 1.0), ("little", 0.001))]
    await asyncio.sleep(0)
    free.set()
    await asyncio.gather(first, *waiting)
    assert order == ["little", "more", "most"]


@pytest.mark.contract("9.15")
async def test_slow_reads_work_one_at_a_time(db: SqliteFile) -> None:
    limit = LANES[1].seconds  # so that they meet in two lanes
    assert limit is not None
    working, most, ended = [0], [0], []

    def work(_: Tx, begun: list[int]) -> None:
        begun.append(1)
        end = time.thread_time() + 2 * limit
        while time.thread_time() < end:
            if len(begun) > 1:  # it has left the first lane
                working[0] += 1
                most[0] = max(most[0], working[0])
                time.sleep(0)
                working[0] -= 1
            check_reading()
        ended.append(1)

    def slow() -> Callable[[Tx], None]:
        begun: list[int] = []
        return lambda tx: work(tx, begun)

    await asyncio.gather(*(db.read(slow()) for _ in range(4)))
    assert (most, len(ended)) == ([1], 4)


async def test_call_submitted_while_the_threads_end_is_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(1, "test")
    assert await threads.run(lambda: "begun", 0) == "begun"
    ending = threading.Thread(target=threads.end)
    numbers = itertools.count(10)

    class EndingMeanwhile:
        """Simulate threads that end while a read is being submitted."""

        def __next__(self) -> int:
            if ending.ident is None:
                ending.start()
                ending.join(0.2)
            return next(numbers)

    monkeypatch.setattr(threads, "_numbers", EndingMeanwhile())
    async with asyncio.timeout(60):
        assert await threads.run(lambda: "done", 0) == "done"
    ending.join(60)
    with pytest.raises(RuntimeError):
        await threads.run(lambda: "late", 0)


async def test_result_does_not_wait_for_a_heavy_client() -> None:
    threads = Threads(1, "test", together=1000.0)
    free = threading.Event()
    quick, slow = (asyncio.create_task(threads.run(*work)) for work in ((lambda: "quick", 0), (free.wait, 1)))
    try:
        async with asyncio.timeout(60):
            assert await quick == "quick"
        assert not slow.done()
    finally:
        free.set()
        await slow
        threads.end()


async def test_every_result_is_returned_however_many_wait() -> None:
    threads = Threads(2, "test", together=1000.0)
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(threads.run(partial(str, number), 0) for number in range(200)))
        assert found == [*map(str, range(200))]
    threads.end()
