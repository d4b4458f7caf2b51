"""Automatic dreams: when they run, about whom, and how much one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from hermes.memory_server.db.database import Database
from hermes.memory_server.db.schema import open_database, open_for_work
from hermes.memory_server.db.tables import conclusions, dreams, jobs, workspaces
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine.conclusions import ensure_collection, insert_conclusion
from hermes.memory_server.engine.dreams import (
    DREAM_INTERVAL_MICROSECONDS,
    MAX_RETIRED_PER_DREAM,
    MIN_NEW_CONCLUSIONS,
    QUIET_MICROSECONDS,
)
from hermes.memory_server.engine.peers import ensure_peer
from hermes.memory_server.engine.worker import JobWorker
from tests.compression.hand_clock import HandClock
from tests.llm.loopback import LoopbackServer, fails, says
from tests.memory_server.floor import EMBEDDER
from tests.memory_server.inside import serving
from tests.memory_server.modelling import SPACE, door_to, workspace_id

pytestmark = [pytest.mark.contract("9.3")]
MICROSECONDS_PER_SECOND = 1_000_000


async def learn(
    database: Database, clock: HandClock, count: int, text: str = "I have plan {}.", peer: str = "ann"
) -> None:
    """Add conclusions of a peer about itself at the current time."""
    clock.advance(1)
    place, at = await workspace_id(database), int(clock.now() * MICROSECONDS_PER_SECOND)
    [vector] = await EMBEDDER.embed([text])

    def run(tx: Any) -> None:
        found, _ = ensure_peer(tx, SPACE, peer, at)
        collection = ensure_collection(tx, place, found.id, found.id)
        for number in range(count):
            content = f"{peer}: {text.format(f'{at}-{number}')}"
            insert_conclusion(tx, place, collection, None, content, at, at, vector=to_blob(vector), message_ids=[])

    await database.write(run)


async def had(database: Database) -> list[Any]:
    """Return the reports of all dreams."""
    return await database.read(lambda tx: [json.loads(row.report) for row in tx.execute(select(dreams))])


async def sleep(worker: JobWorker, clock: HandClock, microseconds: int) -> None:
    """Advance the clock and run the jobs that are due."""
    clock.advance(microseconds / MICROSECONDS_PER_SECOND)
    await worker.queue_dreams()
    while await worker.work_once():
        pass


async def test_a_dream_comes_when_enough_is_new_and_it_is_quiet(database: Database) -> None:
    clock = HandClock()
    worker = JobWorker(database, clock, EMBEDDER, dreams=True)
    await learn(database, clock, MIN_NEW_CONCLUSIONS - 1)
    await sleep(worker, clock, QUIET_MICROSECONDS)
    assert await had(database) == [], "one is missing"
    await learn(database, clock, 1)
    await sleep(worker, clock, QUIET_MICROSECONDS // 2)
    assert await had(database) == [], "something was learnt just now"
    await sleep(worker, clock, QUIET_MICROSECONDS)
    assert len(await had(database)) == 1
    await learn(database, clock, MIN_NEW_CONCLUSIONS)
    await sleep(worker, clock, QUIET_MICROSECONDS)
    assert len(await had(database)) == 1, "the last one is too near"
    await sleep(worker, clock, DREAM_INTERVAL_MICROSECONDS)
    assert len(await had(database)) == 2
    for _ in range(3):
        await sleep(worker, clock, DREAM_INTERVAL_MICROSECONDS)
    assert len(await had(database)) == 2, "nothing is new"


@pytest.mark.parametrize("is_off", ["server", "workspace"])
async def test_dreams_can_be_switched_off(database: Database, is_off: str) -> None:
    clock = HandClock()
    await learn(database, clock, MIN_NEW_CONCLUSIONS)
    if is_off == "workspace":
        off = {"configuration": '{"dream": {"enabled": false}}'}
        await database.write(lambda tx: tx.execute(update(workspaces).values(off)).rowcount)
    await sleep(JobWorker(database, clock, EMBEDDER, dreams=is_off != "server"), clock, QUIET_MICROSECONDS)
    assert await had(database) == []


async def test_a_dream_is_due_after_a_restart_too_and_queued_once(database: Database) -> None:
    clock = HandClock()
    await learn(database, clock, MIN_NEW_CONCLUSIONS)
    clock.advance(QUIET_MICROSECONDS / MICROSECONDS_PER_SECOND)
    for _ in range(3):
        await JobWorker(database, clock, EMBEDDER, dreams=True).queue_dreams()
    assert await database.read(lambda tx: tx.execute(select(func.count()).select_from(jobs)).scalar()) == 1


async def test_dreams_about_many_come_part_by_part(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.memory_server.engine.dreams.COLLECTIONS_PER_QUERY", 2)
    clock = HandClock()
    for peer in ("ann", "bob", "cid", "dan", "eve"):
        await learn(database, clock, MIN_NEW_CONCLUSIONS, peer=peer)
    worker = JobWorker(database, clock, EMBEDDER, dreams=True)
    for _ in range(3):
        await sleep(worker, clock, QUIET_MICROSECONDS)
    assert len(await had(database)) == 5


async def test_a_dream_retires_a_bounded_number_and_the_next_goes_on(database: Database) -> None:
    clock = HandClock()
    await learn(database, clock, MAX_RETIRED_PER_DREAM + 60, text="I have a dog.")
    worker = JobWorker(database, clock, EMBEDDER, dreams=True)
    await sleep(worker, clock, QUIET_MICROSECONDS)
    [first] = await had(database)
    assert len(first["retired"]) == MAX_RETIRED_PER_DREAM
    await learn(database, clock, MIN_NEW_CONCLUSIONS, text="I have a dog.")
    await sleep(worker, clock, DREAM_INTERVAL_MICROSECONDS)
    live = select(func.count()).select_from(conclusions).where(conclusions.c.retired_at.is_(None))
    assert await database.read(lambda tx: tx.execute(live).scalar()) == 1


async def test_a_dream_asks_the_model_where_there_is_one_and_waits_for_it(tmp_path: Path) -> None:
    clock, work = HandClock(), open_for_work(tmp_path)
    database = open_database(tmp_path)
    script = LoopbackServer([fails(429, "slow down")], then=says('{"conclusions": []}'))
    async with (
        serving(database, clock) as client,
        script as server,
        door_to(database, server, clock, guests=True) as door,
    ):
        quiet = {"id": SPACE, "configuration": {"summary": {"enabled": False}}}
        (await client.post("/v3/workspaces", json=quiet)).raise_for_status()
        said = [{"content": f"I have read book {number}.", "peer_id": "ann"} for number in range(MIN_NEW_CONCLUSIONS)]
        path = f"/v3/workspaces/{SPACE}/sessions/s/messages"
        (await client.post(path, json={"messages": said})).raise_for_status()
        worker = JobWorker(work, clock, EMBEDDER, models=door, dreams=True)
        await sleep(worker, clock, 0)
        await sleep(worker, clock, QUIET_MICROSECONDS)
        assert (len(server.requests), await had(work)) == (1, []), "what waits is not done"
        await sleep(worker, clock, QUIET_MICROSECONDS)
        assert (len(server.requests), len(await had(work))) == (2, 1)
    await work.close()
