"""Compression by several processes on one home: leases, take-over, thirteen at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.store.store import Store
from hermes.types import Draft, Json
from tests.compression.checks import check_late, check_lines, check_one_at_a_time, check_store, read_lines
from tests.compression.conversations import make_compressor, said, summariser, talked
from tests.db.processes import finish, hear, say, start, stop_between_writes
from tests.llm.loopback import LoopbackServer, says

pytestmark = pytest.mark.processes

Worker = subprocess.Popen[str]


class Crew:
    """Workers on one home; those still running at the end of a test are ended."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._workers: list[Worker] = []

    async def start(self, session_id: str, url: str, lease: float = 30.0) -> Worker:
        """Start a worker and wait until it is ready."""
        process = start("tests.compression.worker", self._home, session_id, url, lease)
        self._workers.append(process)
        assert await asyncio.to_thread(hear, process) == "ready"
        return process

    def dismiss(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                process.kill()
                with process:
                    process.wait()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    crew.dismiss()


async def told(process: Worker) -> Json:
    """Return the result that a worker prints before it ends."""
    line = await asyncio.to_thread(hear, process)
    await asyncio.to_thread(finish, process)
    return json.loads(line)


async def wait_until_expired(store: Store, session_id: str) -> None:
    """Wait until the lease of the session's compression has expired."""

    def held(tx: Tx) -> bool:
        return leases.holder(tx, f"compression:{session_id}", now=store.clock.now()) is not None

    async with asyncio.timeout(100):
        while await store.read(held):  # noqa: ASYNC110 - another process's lease gives no event
            await asyncio.sleep(0.02)


@pytest.mark.contract("3.3", "3.9")
async def test_result_of_a_process_that_was_stopped_past_its_lease_is_refused(
    store: Store, crew: Crew, tmp_path: Path
) -> None:
    session_id = await talked(store)
    async with LoopbackServer(then=says("the sleeper's summary")) as server:
        server.may_answer.clear()
        sleeper = await crew.start(session_id, server.base_url, 0.6)
        say(sleeper, "go")
        await server.asked.wait()
        await stop_between_writes(sleeper, store.db.path)
        await wait_until_expired(store, session_id)
        second = await make_compressor(store, summariser("the second's summary")).compress(session_id)
        assert second.outcome == "done"
        os.kill(sleeper.pid, signal.SIGCONT)
        server.may_answer.set()
        result = await told(sleeper)

    assert (result["session_id"], result["outcome"]) == (session_id, "failed")
    assert result["reason"].startswith("refused: ")
    view = await store.view(session_id)
    assert (view.epoch, view.summary) == (1, "the second's summary")
    lines = read_lines((tmp_path / "logs" / "agent.log").read_text(encoding="utf-8"))
    assert [line.word for line in lines] == ["started", "failed"]
    assert check_lines(lines) + await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.3")
async def test_lease_of_a_killed_process_is_free_at_once(store: Store, crew: Crew, tmp_path: Path) -> None:
    session_id = await talked(store)
    async with LoopbackServer(then=says("never said", delay=60.0)) as server:
        process = await crew.start(session_id, server.base_url)
        say(process, "go")
        await server.asked.wait()
        assert (await make_compressor(store, summariser()).compress(session_id)).outcome == "busy"
        crew.dismiss()
        assert (await make_compressor(store, summariser()).compress(session_id)).outcome == "done"
    assert await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.3", "3.10")
async def test_thirteen_processes_on_one_session_compress_it_once_at_a_time(
    store: Store, crew: Crew, tmp_path: Path
) -> None:
    session_id = await talked(store)
    async with LoopbackServer(then=says("they spoke of stamps", delay=0.2)) as server:
        workers = [await crew.start(session_id, server.base_url) for _ in range(13)]
        for worker in workers:
            say(worker, "go")
        results = await asyncio.gather(*map(told, workers))
    assert {result["session_id"] for result in results} == {session_id}
    assert {result["outcome"] for result in results} <= {"done", "busy", "skipped", "failed"}
    lines = read_lines((tmp_path / "logs" / "agent.log").read_text(encoding="utf-8"))
    assert len(lines) == 26
    assert check_lines(lines) + check_one_at_a_time(lines) == []
    assert await check_store(store, await said(store, session_id), lines) == []


@pytest.mark.contract("3.4", "3.5")
async def test_two_agent_loop_where_one_is_compressed_while_the_other_sends(
    store: Store, crew: Crew, tmp_path: Path
) -> None:
    session_id = await talked(store)
    async with LoopbackServer(then=says("they spoke of stamps", delay=0.5)) as server:
        worker = await crew.start(session_id, server.base_url)
        say(worker, "go")
        await server.asked.wait()
        late = [f"from the other agent, {number}" for number in range(50)]
        for text in late:
            await store.append(session_id, Draft("user", text))
        result = await told(worker)
        asked_of_model = json.dumps([request.body for request in server.requests])
    assert result["outcome"] == "done"
    assert await check_late(store, session_id, late) == []
    assert "from the other agent" not in asked_of_model
    assert await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.10")
@pytest.mark.parametrize("count", [5, 13])
async def test_multi_agent_host_stability(store: Store, crew: Crew, tmp_path: Path, count: int) -> None:
    """Each agent compresses its session while the others write to theirs; no message is lost."""
    ids = [await talked(store, 12) for _ in range(count)]
    async with LoopbackServer(then=says("they spoke of stamps", delay=0.3)) as server:
        workers = [await crew.start(key, server.base_url) for key in ids]
        for worker in workers:
            say(worker, "go")
        await server.asked.wait()
        late = {key: [f"to {key}: {number}" for number in range(4)] for key in ids}
        for number in range(4):
            await asyncio.gather(*(store.append(key, Draft("user", late[key][number])) for key in ids))
        results = await asyncio.gather(*map(told, workers))

    assert [(result["session_id"], result["outcome"]) for result in results] == [(key, "done") for key in ids]
    lines = read_lines((tmp_path / "logs" / "agent.log").read_text(encoding="utf-8"))
    assert len(lines) == 2 * count
    assert check_lines(lines) + check_one_at_a_time(lines) == []
    assert await check_store(store, await said(store, *ids), lines) == []
    for key in ids:
        assert await check_late(store, key, late[key]) == []
