"""The worker: it prepares and commits jobs, concurrently, and keeps their leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from hermes.clock import SystemClock
from hermes.errors import StoreBusyError
from hermes.memory_server import limits, times
from hermes.memory_server.api.life import Life
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.engine import jobs
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION, delete_session
from hermes.memory_server.engine.job_handlers import HANDLERS, JobHandler, JobTools
from hermes.memory_server.engine.job_kinds import SummaryJob
from hermes.memory_server.engine.jobs import Counts, Job, read_status
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.webhooks import announce, ensure_webhook
from hermes.memory_server.engine.worker import RENEW_INTERVAL_SECONDS, JobWorker
from hermes.memory_server.engine.workspaces import ensure_workspace, get_workspace
from tests.compression.hand_clock import HandClock
from tests.memory_server.floor import EMBEDDER, draft
from tests.memory_server.inside import inward, serving
from tests.memory_server.older import BEFORE_TRUTH
from tests.memory_server.sdk import eventually

NOW = 1_700_000_000_000_000
LEASE = jobs.LEASE_MICROSECONDS / 1_000_000


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run an endpoint that never answers; yield its port and the requests it received."""
    sent: list[bytes] = []
    ended = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(await reader.read(1000))
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], sent
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def at_work(database: Database, kinds: Mapping[str, JobHandler[Any, Any]] = HANDLERS) -> AsyncIterator[JobWorker]:
    """Run a worker for the block."""
    worker = JobWorker(database, SystemClock(), EMBEDDER, delivery=inward(), kinds=kinds)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def say(database: Database, workspace: str, said: str) -> None:
    await database.write(lambda tx: append_messages(tx, workspace, "s", [draft(said, "ann")], NOW))


async def states(database: Database, kind: str) -> list[tuple[str, int]]:
    """Return state and attempts of the jobs of a kind."""
    query = text("SELECT state, attempts FROM jobs WHERE kind = :kind ORDER BY id")
    rows = await database.read(lambda tx: tx.execute(query, {"kind": kind}).all())
    return [(row[0], row[1]) for row in rows]


async def concluded(database: Database) -> list[str]:
    rows = await database.read(lambda tx: tx.exec_driver_sql("SELECT content FROM conclusions ORDER BY id").all())
    return [row[0] for row in rows]


@pytest.mark.contract("9.9")
async def test_webhooks_that_hang_stop_no_learning_in_any_workspace(database: Database) -> None:
    async with hanging() as (port, sent):
        for workspace in ("one", "two"):
            await announce_to(database, workspace, port, limits.MAX_WEBHOOKS)
        async with at_work(database, {**HANDLERS, "webhook": replace(HANDLERS["webhook"], seconds=3600.0)}) as worker:
            await eventually(lambda: look_at(sent), lambda found: len(found) == 2 * limits.MAX_WEBHOOKS)
            for workspace in ("one", "other"):
                await say(database, workspace, f"I live in {workspace}.")
                worker.wake()
            told = ["ann: I live in one.", "ann: I live in other."]
            await eventually(lambda: concluded(database), lambda found: sorted(found) == told)
            held = await states(database, "webhook")
            assert held.count(("running", 1)) == 2 * limits.MAX_WEBHOOKS, "nobody had given up yet"
            assert ("done", 1) not in held


async def announce_to(database: Database, workspace: str, port: int, endpoints: int) -> None:
    """Queue an event for several endpoints of a workspace, all on one port."""

    def run(tx: Tx) -> None:
        ensure_workspace(tx, workspace, NOW)
        for number in range(endpoints):
            ensure_webhook(tx, workspace, f"http://hook.example:{port}/{workspace}/{number}", NOW)
        announce(tx, get_workspace(tx, workspace).id, "test.event", {}, NOW)

    await database.write(run)


async def look_at(found: list[bytes]) -> list[bytes]:
    return found


@pytest.mark.contract("9.9")
async def test_webhook_that_hangs_is_given_up_in_time_and_tried_again(database: Database) -> None:
    quick = {**HANDLERS, "webhook": replace(HANDLERS["webhook"], seconds=3.0)}
    async with hanging() as (port, sent):
        await announce_to(database, "w", port, 1)
        assert await JobWorker(database, SystemClock(), EMBEDDER, delivery=inward(), kinds=quick).work_once()
        assert len(sent) == 1
    assert await states(database, "webhook") == [("pending", 1)]
    reason = await database.read(lambda tx: tx.exec_driver_sql("SELECT error FROM jobs").scalar())
    assert reason == "TimeoutError: not done within 3 seconds"


class Slow:
    """A kind of job whose preparation lasts until `free` is set."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.free = asyncio.Event()

    def kinds(self) -> dict[str, JobHandler[Any, Any]]:
        return {"summary": JobHandler(self.prepare, self.commit, places=2, seconds=3600.0)}

    async def prepare(self, _tools: JobTools, job: Job[Any]) -> None:
        self.begun.append(job.id)
        await self.free.wait()

    def commit(self, _tx: Tx, job: Job[Any], _prepared: object, _at: int) -> None:
        self.done.append(job.id)


async def add(database: Database, unit: str = "u") -> None:
    await database.write(lambda tx: jobs.add_job(tx, SummaryJob("short", 20), unit, NOW, workspace_id=1))


async def time_left(database: Database, clock: HandClock) -> float:
    """Return the remaining seconds of the only job's lease."""
    until = await database.read(lambda tx: tx.exec_driver_sql("SELECT lease_until FROM jobs").scalar())
    return float(until or 0) / 1_000_000 - clock.now()


@pytest.mark.contract("9.9")
async def test_slow_job_keeps_its_lease_and_no_second_worker_takes_it_over(database: Database) -> None:
    await add(database)
    slow, clock = Slow(), HandClock()
    second = JobWorker(database, clock, EMBEDDER, kinds=slow.kinds())
    working = asyncio.create_task(JobWorker(database, clock, EMBEDDER, kinds=slow.kinds()).work_once())
    for _ in range(5):
        await clock.sleeper(RENEW_INTERVAL_SECONDS)
        clock.advance(RENEW_INTERVAL_SECONDS)
        await eventually(lambda: time_left(database, clock), lambda left: left == pytest.approx(LEASE))
    assert 5 * RENEW_INTERVAL_SECONDS > LEASE
    assert not await second.work_once()
    slow.free.set()
    assert await working
    assert slow.begun == slow.done == [1]
    assert await states(database, "summary") == [("done", 1)]


@pytest.mark.contract("9.9")
async def test_job_that_was_taken_over_meanwhile_has_one_effect(database: Database) -> None:
    await add(database)
    slow, clock = Slow(), HandClock()
    first = asyncio.create_task(JobWorker(database, clock, EMBEDDER, kinds=slow.kinds()).work_once())
    await clock.sleeper(RENEW_INTERVAL_SECONDS)
    expired = times.now(clock) + jobs.LEASE_MICROSECONDS + 1
    taken = await database.write(lambda tx: jobs.claim_job(tx, "another", "summary", expired))
    assert taken is not None
    slow.free.set()
    assert await first
    assert slow.done == [], "its effect would have come before another's, who holds the job now"
    assert await states(database, "summary") == [("running", 2)]
    assert await database.write(lambda tx: jobs.finish_job(tx, taken, NOW))


async def test_worker_that_lost_its_lease_stops_preparing(database: Database) -> None:
    await add(database)
    slow, clock = Slow(), HandClock()
    first = asyncio.create_task(JobWorker(database, clock, EMBEDDER, kinds=slow.kinds()).work_once())
    await clock.sleeper(RENEW_INTERVAL_SECONDS)
    await database.write(
        lambda tx: jobs.claim_job(tx, "another", "summary", times.now(clock) + jobs.LEASE_MICROSECONDS + 1)
    )
    clock.advance(RENEW_INTERVAL_SECONDS)
    assert await first, "it would wait for ever otherwise"
    assert await states(database, "summary") == [("running", 2)]


async def test_worker_that_is_stopped_gives_back_what_it_prepares(database: Database) -> None:
    await add(database)
    slow = Slow()
    async with at_work(database, slow.kinds()):
        await eventually(lambda: states(database, "summary"), lambda found: found == [("running", 1)])
    assert await states(database, "summary") == [("pending", 0)]
    assert slow.done == []


async def test_a_job_that_waits_for_the_end_of_a_pause_is_given_back(database: Database) -> None:
    for _ in range(2):
        await add(database)
    slow = Slow()
    slow.free.set()
    async with at_work(database, {"summary": replace(slow.kinds()["summary"], places=1, rest_share=1e9)}):
        pausing = [("done", 1), ("running", 1)]
        await eventually(lambda: states(database, "summary"), lambda found: found == pausing)
    assert slow.begun == [1]
    assert await states(database, "summary") == [("done", 1), ("pending", 0)]


async def test_jobs_of_different_units_are_prepared_concurrently_up_to_a_limit(database: Database) -> None:
    for unit in ("a", "b", "c", "a"):
        await add(database, unit)
    slow = Slow()
    async with at_work(database, slow.kinds()):
        expected = [("running", 1), ("running", 1), ("pending", 0), ("pending", 0)]
        await eventually(lambda: states(database, "summary"), lambda found: found == expected)
        slow.free.set()
        await eventually(lambda: states(database, "summary"), lambda found: found == [("done", 1)] * 4)
    assert slow.done.index(1) < slow.done.index(4)


async def test_effect_of_a_job_is_for_those_who_observe_when_it_ends(database: Database) -> None:
    await say(database, "w", "I like tea.")

    async def prepare(tools: JobTools, job: Job[Any]) -> object:
        made = await HANDLERS["representation"].prepare(tools, job)
        await database.write(lambda tx: jobs.drop_observer(tx, 1, 1))
        return made

    kinds = {"representation": JobHandler(prepare, HANDLERS["representation"].commit)}
    assert await JobWorker(database, SystemClock(), EMBEDDER, kinds=kinds).work_once()
    assert await states(database, "representation") == [("done", 1)]
    assert await concluded(database) == []


async def test_job_that_fails_midway_leaves_no_rows_and_is_kept_with_its_reason(database: Database) -> None:
    await say(database, "w", "I like tea.")
    broken = "INSERT INTO job_observers (job_id, peer_id) VALUES (1, 2), (1, 'x')"
    await database.write(lambda tx: tx.exec_driver_sql(broken))
    worker = JobWorker(database, HandClock(), EMBEDDER)
    assert await worker.work_once()
    assert not await worker.work_once(), "it is tried again later, not at once"
    assert await states(database, "representation") == [("pending", 1)]
    assert await concluded(database) == []
    assert await database.read(lambda tx: tx.exec_driver_sql("SELECT error FROM jobs").scalar())
    await database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET attempts = 4, not_before = 0"))
    assert await worker.work_once()
    assert await status(database) == Counts(pending=1)


async def refuse_poison(tools: JobTools, job: Job[Any]) -> Any:
    said = await HANDLERS["representation"].prepare(tools, job)
    if any("poison" in statement.content for statement in said):
        raise ValueError("it is poison")
    return said


@pytest.mark.contract("9.9")
async def test_failed_learning_of_a_message_is_retried_and_delays_no_other(database: Database) -> None:
    said = [draft(f"I like {what}.", "ann") for what in ("tea", "poison", "milk")]
    await database.write(lambda tx: append_messages(tx, "w", "s", said, NOW))
    await say(database, "w", "I like cake.")
    clock = HandClock()
    faulty = {**HANDLERS, "representation": replace(HANDLERS["representation"], prepare=refuse_poison)}
    worker = JobWorker(database, clock, EMBEDDER, kinds=faulty)
    for _ in range(2 * jobs.MAX_ATTEMPTS):
        await worker.work_once()
        clock.advance(jobs.MAX_RETRY_MICROSECONDS / 1_000_000)
    assert sorted(await concluded(database)) == ["ann: I like cake.", "ann: I like milk.", "ann: I like tea."]
    assert await status(database) == Counts(completed=3, pending=1)
    told = await database.read(lambda tx: read_status(tx, "w", None, None, None))
    reason = "ValueError: it is poison"
    assert told.failing == {"representation": jobs.OpenJobs(1, jobs.MAX_ATTEMPTS, reason)}
    await worker.work_once()  # the pause begins now
    mended = JobWorker(database, clock, EMBEDDER)
    running = asyncio.create_task(mended.run())
    await eventually(lambda: status(database), lambda found: found == Counts(completed=4))
    mended.stop()
    await running
    assert "ann: I like poison." in await concluded(database)


@pytest.mark.contract("9.9")
async def test_learning_that_an_earlier_version_gave_up_is_tried_again(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await say(database, "w", "I like tea.")
    for change in (
        "UPDATE jobs SET state = 'failed', attempts = 5, error = 'no', finished_at = 1",
        "INSERT INTO job_observers (job_id, peer_id) VALUES (1, 99)",
        "DROP TABLE model_calls",
        "DROP TABLE dreams",
        *BEFORE_TRUTH,
        "DROP INDEX conclusions_standing",
        "ALTER TABLE conclusions DROP COLUMN standing",
        "UPDATE alembic_version SET version_num = '0010'",
    ):
        await database.write(lambda tx, change=change: tx.exec_driver_sql(change))  # type: ignore[misc]
    await database.close()
    database = open_database(tmp_path)
    assert await status(database) == Counts(pending=1)
    assert await JobWorker(database, SystemClock(), EMBEDDER).work_once()
    assert await concluded(database) == ["ann: I like tea."], "peers that are gone since learn nothing"
    await database.close()


@pytest.mark.contract("9.9")
async def test_unused_server_does_not_stay_for_work_that_keeps_failing(tmp_path: Path) -> None:
    database, ended = open_database(tmp_path), asyncio.Event()
    await say(database, "w", "I like poison.")
    clock = HandClock()
    faulty = {**HANDLERS, "representation": replace(HANDLERS["representation"], prepare=refuse_poison)}
    worker = JobWorker(database, clock, EMBEDDER, kinds=faulty)
    for _ in range(jobs.MAX_ATTEMPTS + 1):
        clock.advance(jobs.MAX_RETRY_MICROSECONDS / 1_000_000)
        assert await worker.work_once()
    async with serving(database, clock, life=Life(end=ended.set, idle=lambda: 0.01)) as client:
        lag = (await client.get("/health")).json()["lag"]
        assert (lag["retried"], lag["reasons"]) == ({"representation": 6}, {"representation": "ValueError"})
        await ended.wait()


async def test_work_that_takes_many_parts_is_one_job(database: Database) -> None:
    said = [draft(f"I own house {number}.", "ann") for number in range(2 * ROWS_PER_TRANSACTION + 1)]
    await database.write(lambda tx: append_messages(tx, "w", "s", said, NOW))
    await database.write(lambda tx: delete_session(tx, "w", "s", NOW))
    assert await JobWorker(database, SystemClock(), EMBEDDER).work_once()
    assert await states(database, "delete_session") == [("done", 1)]
    assert await database.read(lambda tx: tx.exec_driver_sql("SELECT count(*) FROM messages").scalar()) == 0


async def status(database: Database) -> Counts:
    return (await database.read(lambda tx: read_status(tx, "w", None, None, None))).all


async def test_what_others_wrote_is_one_short_line_of_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_tools: JobTools, _job: Job[Any]) -> None:
        raise ValueError("no\n2026-01-01 ERROR all is lost\r\n" + "x" * 5000)

    await add(database)
    kinds = {"summary": JobHandler(refuse, lambda *_: None)}
    assert await JobWorker(database, SystemClock(), EMBEDDER, kinds=kinds).work_once()
    [line] = [record.getMessage() for record in caplog.records]
    assert "\n" not in line
    assert "\r" not in line
    assert line.startswith("memory worker: job 1 (summary) failed: ValueError: no 2026-01-01 ERROR all is lost xxx")
    assert len(line) < 600


async def test_a_busy_file_is_a_warning_only_after_the_last_attempt(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def find_it_busy(_tools: JobTools, _job: Job[Any]) -> None:
        raise StoreBusyError("the log is in use")

    await add(database)
    kinds = {"summary": JobHandler(find_it_busy, lambda *_: None)}
    worker, warned = JobWorker(database, SystemClock(), EMBEDDER, kinds=kinds), list[int]()
    for _ in range(jobs.MAX_ATTEMPTS):
        await database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET not_before = 0"))
        assert await worker.work_once()
        warned.append(len([record for record in caplog.records if record.levelno >= logging.WARNING]))
    assert warned == [0] * (jobs.MAX_ATTEMPTS - 1) + [1]


async def test_finished_jobs_are_dropped_as_long_as_there_are_some(database: Database) -> None:
    values = "'summary', 'u', 1, '{}', 'done', 0, 1"
    many = f"INSERT INTO jobs (kind, unit, workspace_id, payload, state, created_at, finished_at) SELECT {values}"
    numbers = "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 2500)"
    await database.write(lambda tx: tx.exec_driver_sql(f"{numbers} {many} FROM n").rowcount)
    async with at_work(database):
        await eventually(lambda: states(database, "summary"), lambda found: found == [])
