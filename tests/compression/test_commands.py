"""Compression for people: /compress, `hermes sessions snapshots`, and one-shot questions."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.compression.checks import check_lines, check_one_at_a_time, check_store, read_lines
from tests.compression.conversations import make_compressor, said, summariser, talked, turns
from tests.conftest import Ran
from tests.db.processes import ROOT
from tests.llm.loopback import LoopbackServer, says
from tests.scale import scale

Hermes = Callable[..., Ran]
CONFIG = """\
model: {{base_url: "{url}", default: loop-1, context_length: 8000}}
memory: {{provider: none, review_every: 0}}
"""


async def open_home(home: Path) -> Store:
    home.mkdir(parents=True, exist_ok=True)
    return await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0)


async def run_hermes(home: Path, *arguments: str, lines: str = "") -> tuple[int, str, str]:
    """A real `hermes` process: exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes", *arguments, cwd=ROOT, env={**os.environ, "HERMES_HOME": str(home)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(lines.encode())
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.contract("3.2")
def test_snapshots_are_listed_with_counts_and_can_be_read(hermes: Hermes, home: Path) -> None:
    async def prepare() -> str:
        async with await open_home(home) as store:
            session_id = await talked(store)
            await make_compressor(store, summariser()).compress(session_id)
            await store.append(session_id, *turns(20, start=100))
            await make_compressor(store, summariser("they spoke of more stamps")).compress(session_id)
            return session_id

    session_id = asyncio.run(prepare())
    listed = json.loads(hermes("sessions", "snapshots", session_id, "--json").out)
    assert [(row["messages_before"], row["messages_after"]) for row in listed] == [(60, 9), (49, 9)]
    assert all(row["tokens_before"] > row["tokens_after"] > 0 for row in listed)
    assert all(row["id"].startswith(f"{session_id}.snapshot.") for row in listed)
    table = hermes("sessions", "snapshots", session_id).out
    assert listed[0]["id"] in table
    assert "60 → 9" in table
    shown = json.loads(hermes("sessions", "show", listed[1]["id"], "--json").out)
    assert shown["summary"] == "they spoke of stamps"
    assert len(shown["tail"]) == 48


def test_session_that_was_never_compressed_says_so_and_a_missing_one_is_an_error(hermes: Hermes, home: Path) -> None:
    async def prepare() -> str:
        async with await open_home(home) as store:
            return await talked(store, 1)

    session_id = asyncio.run(prepare())
    assert "never compressed" in hermes("sessions", "snapshots", session_id).err
    assert json.loads(hermes("sessions", "snapshots", session_id, "--json").out) == []
    assert hermes("sessions", "snapshots", "nobody").code == 1


@pytest.mark.processes
@pytest.mark.contract("3.13")
async def test_compress_on_request_answers_with_counts_before_and_after(home: Path) -> None:
    async with await open_home(home) as store:
        session_id = await talked(store)
        async with LoopbackServer(then=says("they spoke of stamps")) as server:
            (home / "config.yaml").write_text(CONFIG.format(url=server.base_url), encoding="utf-8")
            code, _, err = await run_hermes(home, "chat", "-s", session_id, lines="/compress the prices\n/quit\n")
            asked = json.dumps([request.body for request in server.requests])
        assert code == 0, err
        assert "Compressed: ~6,5" in err
        assert f"{session_id}.snapshot." in err
        assert "Pay special attention to: the prices" in asked
        assert (await store.view(session_id)).epoch == 1


@pytest.mark.processes
@pytest.mark.timeout(120)
@pytest.mark.contract("3.13", "4.12")
async def test_one_shot_question_in_a_long_session_ends_promptly(home: Path) -> None:
    async with await open_home(home) as store:
        session_id = await talked(store, 14)
        async with LoopbackServer(then=says("a long answer " * 400, piece=500)) as server:
            config = CONFIG.format(url=server.base_url) + "compression: {idle: 3600}\n"
            (home / "config.yaml").write_text(config, encoding="utf-8")
            code, out, err = await run_hermes(home, "chat", "-s", session_id, "-q", "tell me more")
        assert code == 0, err
        assert out.startswith("a long answer")
        assert (await store.view(session_id)).epoch == 0


@pytest.mark.processes
@pytest.mark.stress
@pytest.mark.contract("3.10", "P3")
async def test_agents_that_cross_the_threshold_at_once_answer_each_in_its_own_session(home: Path) -> None:
    """Ask real `hermes` processes on one home twice each; the request of the second question contains the first."""
    async with await open_home(home) as store:
        ids = [await talked(store, 20) for _ in range(scale(4, 13))]
        async with LoopbackServer(then=says("they spoke of stamps", delay=0.1)) as server:
            (home / "config.yaml").write_text(CONFIG.format(url=server.base_url), encoding="utf-8")
            for word in ("first", "second"):
                questions = [f"{word} for {key}" for key in ids]
                ran = await asyncio.gather(
                    *(run_hermes(home, "chat", "-s", key, "-q", q) for key, q in zip(ids, questions, strict=True))
                )
                assert [(code, out.strip()) for code, out, _ in ran] == [(0, "they spoke of stamps")] * len(ids)
            bodies = [request.body for request in server.requests]
        for key in ids:
            [last] = [body for body in bodies if body["messages"][-1]["content"] == f"second for {key}"]
            said_to_it = [message["content"] for message in last["messages"]]
            assert f"first for {key}" in said_to_it
            assert not any(f"for {other}" in str(said_to_it) for other in ids if other != key)
            assert (await store.view(key)).epoch == 1
        lines = read_lines((home / "logs" / "agent.log").read_text(encoding="utf-8"))
        assert len(lines) == 2 * len(ids)
        assert check_lines(lines) + check_one_at_a_time(lines) == []
        assert await check_store(store, await said(store, *ids), lines) == []
