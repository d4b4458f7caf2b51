"""A server in a process of its own with a model: killed, it neither forgets a request nor counts one that was not."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes.memory_server.db.schema import FILE
from tests.llm.loopback import LoopbackServer, says
from tests.memory_server.modelling import until, write_model
from tests.memory_server.serving import kill, start, stop


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
