"""Jobs as rows: order within a unit, leases, attempts and retention."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from sqlalchemy import TextClause, text

from hermes.clock import SystemClock
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.engine import jobs
from hermes.memory_server.engine.job_handlers import HANDLERS
from hermes.memory_server.engine.job_kinds import (
    APART,
    NAMING_PEERS,
    PAYLOADS,
    PROMISED,
    read_payload,
    write_payload,
)
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER

NOW = 1_700_000_000_000_000


STORED = {
    "representation": '{"messages": [1], "observers": [7, 3]}',
    "summary": '{"kind": "short", "seq": 20}',
    "dream": '{"observer": 7, "observed": 7, "kind": "omni"}',
    "scope": '{"scope": 7, "session": 2}',
    "delete_session": '{"session": 2}',
    "delete_workspace": "{}",
    "delete_peer": '{"peer": 7}',
    "delete_messages": '{"session": 2, "first": 1, "last": 3}',
    "merge_peers": '{"merge": "m"}',
    "tidy": '{"begin": false, "log": true}',
    "catch_up": "{}",
    "reread": "{}",
    "index": '{"kind": "messages", "id": 1}',
    "webhook": '{"url": "http://127.0.0.1:9/", "body": {"type": "test.event", "data": {}}}',
}
"""A payload of each kind as version 0.1 stored it."""


async def add(database: Database, kind: str = "summary", unit: str = "u") -> None:
    payload = read_payload(PAYLOADS[kind], STORED[kind])
    await database.write(lambda tx: jobs.add_job(tx, payload, unit, NOW, workspace_id=1))


async def claim(database: Database, at: int, kind: str = "summary") -> jobs.Job[Any] | None:
    return await database.write(lambda tx: jobs.claim_job(tx, "me", kind, at))


async def give_up(database: Database, job: jobs.Job[Any], at: int) -> None:
    await database.write(lambda tx: jobs.fail_job(tx, job, "no", at))


def test_every_kind_of_job_that_can_be_added_is_done_by_somebody() -> None:
    assert [*HANDLERS] == [*PAYLOADS] == [*STORED]


async def test_jobs_of_one_unit_run_one_after_another_and_other_units_meanwhile(database: Database) -> None:
    await add(database, unit="a")
    await add(database, unit="a")
    await add(database, unit="b")
    claims = [await claim(database, NOW) for _ in range(3)]
    assert [claim.unit if claim else None for claim in claims] == ["a", "b", None]
    first = claims[0]
    assert first is not None
    assert await database.write(lambda tx: jobs.finish_job(tx, first, NOW))
    following = await claim(database, NOW)
    assert following is not None
    assert following.unit == "a"


async def test_lease_that_ran_out_is_taken_over_and_its_old_owner_cannot_finish(database: Database) -> None:
    await add(database)
    old = await database.write(lambda tx: jobs.claim_job(tx, "old", "summary", NOW))
    assert old is not None
    assert await database.write(lambda tx: jobs.claim_job(tx, "new", "summary", NOW + jobs.LEASE_MICROSECONDS)) is None
    await database.write(lambda tx: jobs.renew_job(tx, old, NOW + jobs.LEASE_MICROSECONDS))
    assert (
        await database.write(lambda tx: jobs.claim_job(tx, "new", "summary", NOW + jobs.LEASE_MICROSECONDS + 1)) is None
    )
    new = await database.write(lambda tx: jobs.claim_job(tx, "new", "summary", NOW + 2 * jobs.LEASE_MICROSECONDS + 1))
    assert new is not None
    assert not await database.write(lambda tx: jobs.finish_job(tx, old, NOW))
    assert await database.write(lambda tx: jobs.finish_job(tx, new, NOW))


async def test_webhook_that_fails_is_tried_again_and_then_kept_with_its_reason(database: Database) -> None:
    await add(database, "webhook")
    at = NOW
    for _ in range(jobs.MAX_ATTEMPTS):
        claimed = await claim(database, at, "webhook")
        assert claimed is not None
        await give_up(database, claimed, at)
        assert await claim(database, at, "webhook") is None
        at += jobs.FIRST_RETRY_MICROSECONDS * 2**claimed.attempts
    kept = await database.read(lambda tx: tx.exec_driver_sql("SELECT state, attempts, error FROM jobs").all())
    assert [tuple(row) for row in kept] == [("failed", jobs.MAX_ATTEMPTS, "no")]


async def test_done_work_is_forgotten_after_a_day_and_failed_work_after_a_month(database: Database) -> None:
    day = 24 * 3600 * 1_000_000
    for unit in ("done", "failed", "open"):
        await add(database, "webhook", unit)
    done, failed, _ = [await claim(database, NOW, "webhook") for _ in range(3)]
    assert done is not None
    assert failed is not None
    await database.write(lambda tx: jobs.finish_job(tx, done, NOW))
    await database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET attempts = 5 WHERE unit = 'failed'"))
    await give_up(database, dataclasses.replace(failed, attempts=5), NOW)

    async def kept(at: int) -> list[str]:
        await database.write(lambda tx: jobs.forget_finished(tx, at))
        return [
            row[0]
            for row in await database.read(lambda tx: tx.exec_driver_sql("SELECT unit FROM jobs ORDER BY id").all())
        ]

    assert await kept(NOW + day) == ["done", "failed", "open"]
    assert await kept(NOW + day + 1) == ["failed", "open"]
    assert await kept(NOW + 30 * day) == ["failed", "open"]
    assert await kept(NOW + 30 * day + 1) == ["open"]


async def test_job_that_is_given_back_can_be_taken_at_once_and_has_lost_no_try(database: Database) -> None:
    await add(database)
    first = await claim(database, NOW)
    assert first is not None
    await database.write(lambda tx: jobs.release_job(tx, first))
    assert await claim(database, NOW) == first


async def test_jobs_that_review_conclusions_wait_for_earlier_learning_of_the_workspace(database: Database) -> None:
    await add(database, kind="representation", unit="learn")
    await add(database, kind="dream", unit="dream")
    await add(database, kind="representation", unit="later")

    async def take(kind: str) -> jobs.Job[Any] | None:
        return await database.write(lambda tx: jobs.claim_job(tx, "me", kind, NOW))

    assert await take("dream") is None
    lesson = await take("representation")
    assert lesson is not None
    assert await take("dream") is None
    await database.write(lambda tx: jobs.finish_job(tx, lesson, NOW))
    assert await take("dream") is not None


async def test_dream_does_not_wait_for_a_message_that_keeps_failing(database: Database) -> None:
    await add(database, kind="representation", unit="learn")
    await add(database, kind="dream", unit="dream")
    at = NOW
    for _ in range(jobs.MAX_ATTEMPTS):
        assert await claim(database, at, "dream") is None
        lesson = await claim(database, at, "representation")
        assert lesson is not None
        await give_up(database, lesson, at)
        at += jobs.MAX_RETRY_MICROSECONDS
    assert await claim(database, at, "dream") is not None


async def test_reason_of_a_failure_is_kept_in_bounds(database: Database) -> None:
    await add(database)
    claimed = await claim(database, NOW)
    assert claimed is not None
    await database.write(lambda tx: jobs.fail_job(tx, claimed, "no" * 10_000, NOW))
    kept = await database.read(lambda tx: tx.exec_driver_sql("SELECT length(error) FROM jobs").scalar())
    assert kept == jobs.MAX_REASON_CHARS


async def test_job_interrupted_before_the_clock_was_set_back_is_taken_over_at_once(database: Database) -> None:
    await add(database)
    assert await claim(database, NOW) is not None
    yesterday = NOW - 24 * 3600 * 1_000_000
    taken = await claim(database, yesterday)
    assert taken is not None
    await give_up(database, taken, NOW)
    assert await claim(database, yesterday) is not None, "nor does a later try wait for a day"


async def test_lease_is_respected_by_a_clock_that_is_a_little_behind(database: Database) -> None:
    await add(database)
    assert await claim(database, NOW) is not None
    assert await claim(database, NOW - 1) is not None, "nobody else can hold it for longer than a lease from now"
    assert await claim(database, NOW) is None


async def test_thousands_of_finished_jobs_are_deleted_in_parts(database: Database) -> None:
    values = "'summary', 'u', 1, '{}', 'done', 0, 1"
    many = f"INSERT INTO jobs (kind, unit, workspace_id, payload, state, created_at, finished_at) SELECT {values}"
    numbers = "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 2500)"
    await database.write(lambda tx: tx.exec_driver_sql(f"{numbers} {many} FROM n").rowcount)
    more = [await database.write(lambda tx: jobs.forget_finished(tx, NOW)) for _ in range(3)]
    assert more == [True, True, False]
    assert await database.read(lambda tx: tx.exec_driver_sql("SELECT count(*) FROM jobs").scalar()) == 0


@pytest.mark.contract("9.9")
@pytest.mark.parametrize("kind", PROMISED)
async def test_promised_work_is_tried_for_as_long_as_it_takes(database: Database, kind: str) -> None:
    await add(database, kind=kind)
    at = NOW
    for tries in range(1, 4 * jobs.MAX_ATTEMPTS):
        claimed = await database.write(lambda tx, at=at: jobs.claim_job(tx, "me", kind, at))  # type: ignore[misc]
        assert claimed is not None, f"after {tries} tries"
        assert claimed.attempts == tries
        await give_up(database, claimed, at)
        at += jobs.MAX_RETRY_MICROSECONDS
    assert jobs.MAX_RETRY_MICROSECONDS < jobs.MAX_WAIT_MICROSECONDS, "else it would be taken for set by another clock"


@pytest.mark.parametrize("kind", APART)
async def test_job_that_fails_again_and_again_holds_up_no_other(database: Database, kind: str) -> None:
    for _ in range(2):
        await add(database, kind=kind, unit="unit:1")
    at = NOW
    for _ in range(jobs.MAX_ATTEMPTS):
        claimed = await claim(database, at, kind)
        assert claimed is not None
        assert claimed.id == 1, "one after another"
        await give_up(database, claimed, at)
        at += jobs.MAX_RETRY_MICROSECONDS
    claims = [await claim(database, at, kind) for _ in range(2)]
    assert [claimed.id if claimed else None for claimed in claims] == [1, 2]


@pytest.mark.parametrize("kind", [*STORED])
def test_stored_payload_of_an_earlier_version_is_read_and_written_alike(kind: str) -> None:
    payload, stored = read_payload(PAYLOADS[kind], STORED[kind]), json.loads(STORED[kind])
    stored.pop("observers", None)  # unknown by now, so it is ignored
    assert json.loads(write_payload(payload)) == stored


def test_numbers_in_payloads_tell_what_they_name() -> None:
    for payload in PAYLOADS.values():
        for name, hint in get_type_hints(payload, include_extras=True).items():
            is_plain = hint is int or (get_origin(hint) is not Annotated and int in get_args(hint))
            assert not is_plain, f"{payload.__name__}.{name} is of no type of its own"
    assert NAMING_PEERS == ("dream", "scope", "delete_peer")


@pytest.mark.parametrize("kind", NAMING_PEERS)
async def test_merged_peer_is_replaced_in_every_payload_that_names_it(database: Database, kind: str) -> None:
    await add(database, kind)
    await database.write(lambda tx: jobs.replace_peer(tx, 1, 7, 8))
    claimed = await claim(database, NOW, kind)
    assert claimed is not None
    assert json.loads(claimed.stored) == json.loads(STORED[kind].replace("7", "8"))


@pytest.mark.parametrize("kind", NAMING_PEERS)
async def test_job_about_a_deleted_peer_is_dropped(database: Database, kind: str) -> None:
    await add(database, kind)
    await database.write(lambda tx: jobs.forget_peer(tx, 1, 7))
    assert await claim(database, NOW, kind) is None


async def test_job_about_another_peer_stays_when_one_is_deleted(database: Database) -> None:
    await add(database, "dream")
    await database.write(lambda tx: jobs.forget_peer(tx, 1, 77))
    assert await claim(database, NOW, "dream") is not None


async def test_unreadable_payload_fails_its_job_alone(database: Database) -> None:
    await add(database, "dream", unit="broken")
    await add(database, "dream", unit="whole")
    await database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET payload = '{}' WHERE unit = 'broken'").rowcount)
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass
    rows = await database.read(lambda tx: tx.exec_driver_sql("SELECT unit, state, error FROM jobs ORDER BY id").all())
    [(_, state, error), whole] = [tuple(row) for row in rows]
    assert (state, whole) == ("pending", ("whole", "done", None))
    assert error is not None
    assert "missing required field `observer`" in error


async def test_waiting_jobs_of_an_earlier_version_run(database: Database) -> None:
    columns = "kind, unit, workspace_id, session_id, payload, created_at"
    one = text(f"INSERT INTO jobs ({columns}) VALUES (:kind, :kind, :workspace, 2, :payload, {NOW})")
    kinds = [kind for kind in STORED if kind != "webhook"]
    for kind in kinds:
        given = {"kind": kind, "workspace": 9 if kind == "delete_workspace" else 1, "payload": STORED[kind]}
        await database.write(partial(_insert, one=one, given=given))
    worker = JobWorker(database, SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass
    undone = "SELECT kind, error FROM jobs WHERE state != 'done'"
    left = await database.read(lambda tx: tx.exec_driver_sql(undone).all())
    assert [tuple(row) for row in left] == []
    assert {*kinds} == {kind for kind, outcome in worker.outcomes if outcome == "done"}


def _insert(tx: Tx, one: TextClause, given: dict[str, Any]) -> None:
    tx.execute(one, given)
