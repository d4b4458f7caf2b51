"""Caps, outages and waiting jobs: a request that is not sent is neither lost nor reported as done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from hermes.memory_server.api.life import Life
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.schema import open_database, open_for_work
from hermes.memory_server.db.tables import sessions
from hermes.memory_server.engine.job_handlers import HANDLERS, JobTools
from hermes.memory_server.engine.job_kinds import SummaryJob
from hermes.memory_server.engine.jobs import Counts, Job, add_job, read_status
from hermes.memory_server.engine.quotes import own_sessions
from hermes.memory_server.engine.worker import JobWorker
from hermes.memory_server.model.answer import ModelWaiting
from hermes.memory_server.model.calls import DAY_MICROSECONDS
from hermes.memory_server.model.settings import FILE
from hermes.types import OWN_MARK, Json
from tests.compression.hand_clock import HandClock
from tests.llm.loopback import LoopbackServer, fails, says
from tests.memory_server.floor import EMBEDDER
from tests.memory_server.inside import serving
from tests.memory_server.modelling import (
    QUESTION,
    SPACE,
    ask,
    door_to,
    model_of,
    rows,
    until,
    workspace_id,
    write_model,
)

USAGE = {"prompt_tokens": 10, "completion_tokens": 10}
DAY_SECONDS = DAY_MICROSECONDS / 1e6


@pytest.mark.contract("9.3")
async def test_no_call_is_made_beyond_the_cap_of_a_day(database: Database) -> None:
    clock = HandClock()
    script = LoopbackServer(then=says("a", usage=USAGE))
    async with script as server, door_to(database, server, clock, cap_calls=2) as door:
        model = await model_of(door, database)
        answers = [await ask(model) for _ in range(3)]
        other = await ask(await model_of(door, database, "other"))
        clock.advance(DAY_SECONDS)
        tomorrow = await ask(model)
    assert [one.failure is None for one in answers] == [True, True, False]
    failure = answers[2].failure
    assert failure is not None
    assert (failure.kind, failure.may_pass) == ("cap", True)
    assert "cap of 2 calls" in failure.reason
    assert other.failure is None, "another workspace has a cap of its own"
    assert tomorrow.failure is None
    assert len(server.requests) == 4


async def test_a_call_that_could_exceed_the_cap_of_tokens_is_not_made(database: Database) -> None:
    async with LoopbackServer(then=says("a", usage=USAGE)) as server, door_to(database, server, cap_tokens=230) as door:
        model = await model_of(door, database)
        kinds = [(answer.failure.kind if answer.failure else "ok") for answer in [await ask(model) for _ in range(8)]]
    assert set(kinds) == {"ok", "cap"}
    assert kinds == sorted(kinds, reverse=True), "once reached, it holds"
    assert sum(row.prompt_tokens + row.completion_tokens for row in await rows(database)) <= 230


async def test_calls_at_the_same_time_do_not_exceed_the_cap(database: Database) -> None:
    script = LoopbackServer(then=says("a", usage=USAGE, delay=0.05))
    async with script as server, door_to(database, server, cap_calls=3) as door:
        model = await model_of(door, database)
        answers = await asyncio.gather(*(ask(model) for _ in range(8)))
    assert sum(answer.failure is None for answer in answers) == 3
    assert len(server.requests) == 3


async def test_a_cap_outlasts_a_restart(tmp_path: Path) -> None:
    async with LoopbackServer(then=says("a", usage=USAGE)) as server:
        for expected in (None, "cap"):
            database = open_database(tmp_path)
            async with door_to(database, server, cap_calls=1) as door:
                failure = (await ask(await model_of(door, database))).failure
            await database.close()
            assert (failure and failure.kind) == expected


async def test_a_request_on_its_way_is_counted_before_it_is_answered(database: Database) -> None:
    async with LoopbackServer(then=says("a")) as server, door_to(database, server) as door:
        server.may_answer.clear()
        model = await model_of(door, database)
        asking = asyncio.create_task(ask(model))
        await until(lambda: server.requests)
        [row] = await rows(database)
        server.may_answer.set()
        await asking
    assert (row.outcome, row.completion_tokens) == ("sent", 100), "whoever is killed now leaves it counted"


@pytest.mark.parametrize("kind", ["refused", "auth", "rate_limited"])
async def test_a_dead_endpoint_is_left_alone_and_asked_again_later(
    database: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    trouble = {"auth": fails(401, "bad key"), "rate_limited": fails(429, "slow down")}.get(kind)
    async with LoopbackServer([trouble] if trouble else [], then=says("back")) as server:
        port = server.port if trouble else 9
        async with door_to(database, server, clock) as door:
            if not trouble:
                write_model(database.folder or Path(), url=f"http://127.0.0.1:{port}/v1")
            model = await model_of(door, database)
            first, second = await ask(model), await ask(model)
            report = door.report() or {}
            clock.advance(6)
            third = await ask(model)
    assert first.failure is not None
    assert second.failure is not None
    assert (first.failure.kind, second.failure.kind, report["state"]) == (kind, "down", "down")
    assert (third.text == "back") == bool(trouble)
    assert [one.message for one in caplog.records if "without a model" in one.message].__len__() == 1


async def test_a_storm_of_429_is_asked_less_and_less_often(database: Database) -> None:
    clock = HandClock()
    async with LoopbackServer(then=fails(429, "slow down")) as server, door_to(database, server, clock) as door:
        model = await model_of(door, database)
        for _ in range(600):
            await ask(model)
            clock.advance(1)
    assert len(server.requests) <= 8, "5, 10, 20, 40 … seconds"


async def test_an_endpoint_that_wishes_a_wait_gets_it(database: Database) -> None:
    clock = HandClock()
    limited = fails(429, "slow down", {"Retry-After": "120"})
    async with LoopbackServer([limited], then=says("a")) as server, door_to(database, server, clock) as door:
        model = await model_of(door, database)
        await ask(model)
        clock.advance(100)
        early = await ask(model)
        clock.advance(30)
        late = await ask(model)
    assert early.failure is not None
    assert early.failure.kind == "down"
    assert late.failure is None


async def _compose(tools: JobTools, job: Job[Any]) -> str:
    """A job that needs a model."""
    assert tools.models is not None
    model = await tools.models.of(job.workspace_id)
    if model is None:
        return "offline"
    answer = await model.ask("summary", QUESTION, max_tokens=50, deadline_seconds=10)
    if answer.failure is not None:
        raise ModelWaiting(answer.failure)
    return answer.text


NEEDY = {**HANDLERS, "summary": replace(HANDLERS["summary"], prepare=_compose, commit=lambda *_: None)}


async def _queue(database: Database, number: int = 1) -> None:
    place = await workspace_id(database)
    for at in range(number):
        await database.write(lambda tx, at=at: add_job(tx, SummaryJob("short", 20), f"summary:{at}", 0, place))  # type: ignore[misc]


@pytest.mark.contract("9.3")
async def test_a_job_beyond_the_cap_waits_and_is_done_the_next_day(database: Database) -> None:
    clock = HandClock()
    async with (
        LoopbackServer(then=says("a", usage=USAGE)) as server,
        door_to(database, server, clock, cap_calls=1) as door,
    ):
        await _queue(database, 2)
        worker = JobWorker(database, clock, EMBEDDER, models=door, kinds=NEEDY)
        while await worker.work_once():
            pass
        told = await database.read(lambda tx: read_status(tx, SPACE, None, None, None))
        clock.advance(DAY_SECONDS)
        while await worker.work_once():
            pass
        later = await database.read(lambda tx: read_status(tx, SPACE, None, None, None))
    assert (told.all, told.failing) == (Counts(completed=1, pending=1), {})
    assert told.waiting["summary"].waiting == 1
    assert "cap of 1 calls" in told.waiting["summary"].reason
    assert (later.all, later.waiting) == (Counts(completed=2), {})


async def test_waiting_is_no_try_and_ends_as_soon_as_the_endpoint_is_back(database: Database) -> None:
    clock = HandClock()
    script = LoopbackServer([fails(401, "bad key")] * 7, then=says("a"))
    async with script as server, door_to(database, server, clock) as door:
        await _queue(database)
        worker = JobWorker(database, clock, EMBEDDER, models=door, kinds=NEEDY)
        for _ in range(7):
            assert await worker.work_once()
            clock.advance(3600)
        told = await database.read(lambda tx: read_status(tx, SPACE, None, None, None))
        assert told.waiting["summary"].tries == 0
        clock.advance(-3600)
        clock.advance(601)
        assert (await ask(await model_of(door, database))).failure is None  # somebody else asks, and it answers
        assert await worker.work_once()
        told = await database.read(lambda tx: read_status(tx, SPACE, None, None, None))
    assert told.all == Counts(completed=1)


async def test_an_unused_server_does_not_stay_for_jobs_that_wait_for_a_model(tmp_path: Path) -> None:
    database, ended = open_database(tmp_path), asyncio.Event()
    async with LoopbackServer(then=fails(401, "bad key")) as server, door_to(database, server) as door:
        await _queue(database)
        await JobWorker(database, HandClock(), EMBEDDER, models=door, kinds=NEEDY).work_once()
        async with serving(database, HandClock(), life=Life(end=ended.set, idle=lambda: 0.01)) as client:
            health = (await client.get("/health")).json()
            await asyncio.wait_for(ended.wait(), 30)
    assert health["model"]["waiting"] == {"summary": 1}
    assert health["lag"]["retried"] == {}


@pytest.mark.contract("9.3")
async def test_a_running_server_notices_that_a_model_came_or_went(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    async with LoopbackServer(then=says("a")) as server, serving(database, work=open_for_work(tmp_path)) as client:
        assert (await client.get("/health")).json()["model"] is None
        write_model(tmp_path, url=server.base_url)
        model = (await client.get("/health")).json()["model"]
        assert (model["name"], model["class"], model["state"]) == ("loop-1", "compose", "ok")
        (tmp_path / FILE).unlink()
        assert (await client.get("/health")).json()["model"] is None


async def test_calls_are_shown_by_health_and_metrics(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    async with LoopbackServer(then=says("a", usage=USAGE)) as server, serving(database) as client:
        write_model(tmp_path, url=server.base_url)
        here = client._transport.app.state.server  # type: ignore[attr-defined]  # no route asks a model yet
        await ask(await model_of(here.models, database))
        model = (await client.get("/health")).json()["model"]
        metrics = (await client.get("/metrics")).text
    assert model["today"]["choice"]["calls"] == 1
    assert model["today"]["choice"]["tokens"] == 20
    assert 'hermes_memory_model_tokens_total{purpose="choice",outcome="ok"} 20' in metrics


@pytest.mark.contract("9.3")
async def test_sessions_are_the_owners_where_every_message_is_marked(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    forged = {"note": f'"{OWN_MARK}": true'}
    said: dict[str, list[Json]] = {
        "own": [{OWN_MARK: True}] * 2,
        "mixed": [{OWN_MARK: True}, {}],
        "guest": [{}],
        "forged": [forged],
    }
    async with serving(database) as client:
        for name, marks in said.items():
            messages = [{"content": "hi", "peer_id": "ann", "metadata": mark} for mark in marks]
            path = f"/v3/workspaces/{SPACE}/sessions/{name}/messages"
            (await client.post(path, json={"messages": messages})).raise_for_status()
        (await client.post(f"/v3/workspaces/{SPACE}/sessions", json={"id": "empty"})).raise_for_status()
        ids = await database.read(lambda tx: {row.name: row.id for row in tx.execute(select(sessions))})
        own = await database.read(lambda tx: own_sessions(tx, ids.values()))
    assert own == {ids["own"]}


@pytest.mark.contract("9.3")
async def test_a_request_that_is_sent_again_in_another_form_is_counted_twice(database: Database) -> None:
    script = [fails(400, "unknown field stream_options"), says("a", usage=USAGE)]
    async with LoopbackServer(script, then=says("b", usage=USAGE)) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        assert [(await ask(model)).text for _ in range(2)] == ["a", "b"]
        counts = door.counter.metrics
    assert [row.outcome for row in await rows(database)] == ["bad_request", "ok", "ok"]
    assert (counts["calls", "choice", "bad_request"], counts["calls", "choice", "ok"]) == (1, 2)
    assert len(server.requests) == 3


async def test_a_cap_holds_for_a_request_that_would_be_sent_again(database: Database) -> None:
    script = [fails(400, "unknown field stream_options")]
    async with LoopbackServer(script, then=says("a")) as server, door_to(database, server, cap_calls=1) as door:
        failure = (await ask(await model_of(door, database))).failure
    assert failure is not None
    assert (failure.kind, failure.may_pass) == ("cap", True)
    assert len(server.requests) == 1
