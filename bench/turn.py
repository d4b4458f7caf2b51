"""Measures our share of a turn: `hermes chat -q` against an endpoint on loopback, less the endpoint's own time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from bench.table import Row, report, summarise, time_calls
from hermes.llm.connection import ConnectionPool, TimeBudget, Timeouts
from hermes.llm.model import Endpoint

PROCESS_RUN_COUNT = 12
CONCURRENT_COUNT = 100
BODY = json.dumps({"messages": [{"role": "user", "content": "Hello."}]}, separators=(",", ":")).encode()
DELAY_SECONDS = 0.2
"""Time that the endpoint takes for each reply."""


def run() -> None:
    """Measure and print."""
    bare = summarise("python -c pass", time_calls(lambda: _run(dict(os.environ), "-c", "pass"), PROCESS_RUN_COUNT))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        offline = {**os.environ, "HERMES_HOME": folder, "OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}
        floor = time_calls(lambda: _run(offline, "-m", "hermes", "chat", "-q", "hi"), PROCESS_RUN_COUNT)
        waited = [seconds - DELAY_SECONDS for seconds in _time_turns(Path(folder))]
    report("Connections: CPU of a model request, 100 at once", _connections())
    report(
        "Turn: hermes chat -q, less the endpoint's own time",
        [bare, summarise("one reply", waited, bare), summarise("no model", floor, bare)],
    )


def _connections() -> list[Row]:
    """Measure the CPU time of a request over our connections, and over one httpx client for all."""
    with subprocess.Popen([sys.executable, "-m", "bench.swift_model"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            return asyncio.run(_compare(f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}/v1"))
        finally:
            server.kill()


async def _compare(url: str) -> list[Row]:
    pool, limits = ConnectionPool(Endpoint.parse(url), Timeouts()), httpx.Limits(max_connections=None)

    async def ours(_: int) -> None:
        async with pool.exchange("POST", "", TimeBudget(60), BODY) as answer:
            await answer.text(10_000)

    async with httpx.AsyncClient(limits=limits, timeout=60, verify=False, trust_env=False) as client:
        shared = summarise(
            "one httpx client", [await _cpu(lambda _: client.post(url, content=BODY)) for _ in range(PROCESS_RUN_COUNT)]
        )
    own = summarise("ours", [await _cpu(ours) for _ in range(PROCESS_RUN_COUNT)], shared)
    await pool.close()
    return [shared, own]


async def _cpu(ask: Callable[[int], Awaitable[object]]) -> float:
    """Return the CPU seconds per request of many parallel requests."""
    begun = time.process_time()
    await asyncio.gather(*(ask(number) for number in range(CONCURRENT_COUNT)))
    return (time.process_time() - begun) / CONCURRENT_COUNT


def _time_turns(folder: Path) -> list[float]:
    script = folder / "script.json"
    script.write_text(json.dumps({"then": {"says": {"text": "Hello.", "delay": DELAY_SECONDS}}}))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.llm.loopback", "--script", str(script)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            endpoint = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "x", "HERMES_MODEL": "loop"}
            env = {**os.environ, "HERMES_HOME": str(folder / "home"), **endpoint}
            return time_calls(lambda: _run(env, "-m", "hermes", "chat", "-q", "hi"), PROCESS_RUN_COUNT)
        finally:
            server.kill()


def _run(env: dict[str, str], *arguments: str) -> None:
    compiled = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True, env=compiled
    )
