"""A server process with a model: after a kill every request is counted, exactly once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.memory_server.db.schema import FILE
from tests.llm.beside import beside
from tests.llm.loopback import LoopbackServer, says
from tests.memory_server.modelling import until, write_model
from tests.memory_server.serving import inside, kill, start, stop
from tests.memory_server.talking import say, settle


def counted(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / FILE)) as file:
        return file.execute("SELECT purpose, outcome FROM model_calls ORDER BY id").fetchall()


@pytest.mark.processes
@pytest.mark.contract("9.3")
async def test_kill_leaves_every_request_counted_and_the_test_is_done_after_it(tmp_path: Path) -> None:
    answers = [says('{"line": 2}'), says('{"line": 0}'), says('{"line": 2}'), says('{"line": 0}'), says("x")]
    async with LoopbackServer(answers) as server:
        write_model(tmp_path, url=server.base_url, model_class=None)
        server.may_answer.clear()
        served = await asyncio.to_thread(start, tmp_path)
        await until(lambda: len(server.requests) == 1)
        await asyncio.to_thread(kill, served)
        assert counted(tmp_path) == [("self_test", "sent")]
        server.may_answer.set()
        served = await asyncio.to_thread(start, tmp_path)
        await until(lambda: len(counted(tmp_path)) == 4 and counted(tmp_path)[-1][1] == "ok")
        await asyncio.to_thread(stop, served)
        assert counted(tmp_path) == [("self_test", "sent"), *[("self_test", "ok")] * 3]
        assert len(server.requests) == 4


COUNTS = {
    "conclusions": "SELECT count(*) FROM conclusions WHERE level = 'explicit'",
    "drawn": "SELECT count(*) FROM conclusions WHERE level = 'deductive'",
    "summaries": "SELECT count(*) FROM summaries",
    "dreams": "SELECT count(*) FROM dreams",
    "dreamt": "SELECT count(*) FROM jobs WHERE kind = 'dream' AND state = 'done'",
    "summarised": "SELECT count(*) FROM jobs WHERE kind = 'summary' AND state = 'done'",
}


def look(folder: Path, name: str) -> int:
    with closing(sqlite3.connect(folder / FILE)) as file:
        return int(file.execute(COUNTS[name]).fetchone()[0])


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # what another process does has no event


@contextmanager
def hanging(folder: Path, purpose: str) -> Iterator[httpx.Client]:
    """Run a server whose model never answers; kill it once it has sent a request for this purpose."""
    with beside(LoopbackServer(then=says("x", ending="hang"))) as model:
        write_model(folder, url=model.base_url, guests=True)
        served = start(folder)
        with inside(served, "lab") as http:
            yield http
            wait_until(lambda: not purpose or (purpose, "sent") in counted(folder))
            kill(served)


@pytest.mark.processes
@pytest.mark.contract("9.3")
def test_a_kill_during_each_kind_of_work_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    """The kinds of work are learning, a summary, a question and a dream."""
    with hanging(tmp_path, "") as http:
        say(http, "s", *(f"I plan day {number} of my trip." for number in range(1, 60)))
    with hanging(tmp_path, "summary") as http:
        say(http, "s", "I plan day 60 of my trip.")
    assert (look(tmp_path, "summaries"), look(tmp_path, "summarised")) == (0, 0), "nothing is done without its result"
    with ThreadPoolExecutor() as beside_us:
        with hanging(tmp_path, "dialectic") as http:
            asking = beside_us.submit(http.post, "/peers/ann/chat", json={"query": "What do I plan?"})
        with pytest.raises(httpx.HTTPError):
            asking.result()
    with hanging(tmp_path, "deduction") as http:
        wait_until(lambda: look(tmp_path, "conclusions") == 60)
        http.post("/schedule_dream", json={"observer": "ann", "dream_type": "omni"}).raise_for_status()
    assert (look(tmp_path, "dreams"), look(tmp_path, "dreamt"), look(tmp_path, "drawn")) == (0, 0, 0)
    early = {"text": "Ann rises early.", "kind": "deduction", "lines": [1]}
    with beside(LoopbackServer(then=says(f"Ann plans a trip [1]. {json.dumps({'conclusions': [early]})}"))) as model:
        write_model(tmp_path, url=model.base_url, guests=True)
        served = start(tmp_path)
        with inside(served, "lab") as http:
            settle(http)
            assert http.post("/peers/ann/chat", json={"query": "What do I plan?"}).json()["content"]
            made = http.get("/sessions/s/summaries").json()
        assert "Traceback" not in stop(served)
    assert "* Ann plans a trip." in made["short_summary"]["content"]
    assert {name: look(tmp_path, name) for name in ("conclusions", "drawn", "summaries", "dreams", "dreamt")} == {
        "conclusions": 60, "drawn": 1, "summaries": 2, "dreams": 1, "dreamt": 1,
    }  # fmt: skip
