"""Real processes for tests of the gateway: the gateway itself and a model, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.db.processes import ROOT, await_end, hear, start

PATIENCE = 60.0


@dataclass(frozen=True)
class ModelProcess:
    """A running echo model."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def requests(self) -> list[list[dict[str, str]]]:
        """The messages of every request so far, in order."""
        found = httpx.get(f"http://127.0.0.1:{self.port}/_requests").json()
        return [request["messages"] for request in found]


@contextmanager
def echo_model(*, summary: float = 0.0, delay: float = 0.0, pause: float = 0.0) -> Iterator[ModelProcess]:
    """An echo model as long as the block runs."""
    process = start("tests.gateway.echo_model", "--summary", str(summary), "--delay", str(delay), "--pause", str(pause))
    try:
        yield ModelProcess(json.loads(hear(process))["port"])
    finally:
        process.kill()
        await_end(process)


def write_config(home: Path, settings: Mapping[str, object]) -> None:
    """config.yaml with `settings`, whose names are dotted."""
    home.mkdir(parents=True, exist_ok=True)
    blocks: dict[str, dict[str, object]] = {}
    for name, value in settings.items():
        block, _, leaf = name.partition(".")
        blocks.setdefault(block, {})[leaf] = value
    (home / "config.yaml").write_text(json.dumps(blocks), encoding="utf-8")


class GatewayProcess:
    """`hermes gateway run` for one home. `url` is where its API answers."""

    def __init__(self, home: Path, *, profile: str | None = None, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self._root = home.parent.parent if profile else home
        self._arguments = ["-p", profile] if profile else []
        self._env = {**os.environ, **(env or {}), "HERMES_HOME": str(self._root)}
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def begin(self) -> GatewayProcess:
        """Start it, without waiting for anything."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hermes", *self._arguments, "gateway", "run"],
            cwd=ROOT,
            env=self._env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def start(self) -> GatewayProcess:
        """Start it, if it is not begun, and wait until its API answers."""
        if self._process is None or self._process.poll() is not None:
            self.begin()
        until = time.monotonic() + PATIENCE
        while not (url := self._reported()):
            assert self._process is not None
            assert self._process.poll() is None, self.errors()
            assert time.monotonic() < until, "the gateway did not start"
            time.sleep(0.02)
        self.url = url
        return self

    def _reported(self) -> str:
        """The API's URL, once this very process has reported it."""
        path = self.home / "state.db"
        if not path.exists():
            return ""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            owner = db.execute("SELECT owner FROM hermes_leases WHERE name = 'gateway'").fetchone()
            if owner is None or owner[0] is None or f":{self.pid}:" not in owner[0]:
                return ""
            row = db.execute("SELECT detail FROM hermes_gateway_status WHERE part = 'api' AND state = 'ok'").fetchone()
            return row[0] if row else ""
        return ""

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._close()

    def end(self) -> int:
        """SIGTERM, and its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._close()

    def wait(self) -> int:
        """Wait until it has ended by itself; its exit code."""
        return self._close()

    def errors(self) -> str:
        """What it wrote to stderr; ends with the process."""
        assert self._process is not None
        assert self._process.stderr is not None
        return self._process.stderr.read()

    def error_lines(self) -> Iterator[str]:
        """What it writes to stderr, line by line, as it comes."""
        assert self._process is not None
        assert self._process.stderr is not None
        return iter(self._process.stderr.readline, "")

    def _close(self) -> int:
        assert self._process is not None
        code = self._process.wait(PATIENCE)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code

    def __enter__(self) -> GatewayProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def api_settings(model: ModelProcess, **more: object) -> dict[str, object]:
    """Settings of a home whose gateway serves the API with this model."""
    return {
        "api.enabled": True,
        "api.port": 0,
        "model.base_url": model.base_url,
        "model.default": "echo",
        "memory.review_every": 0,
        "compression.idle": 0,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def rows(home: Path, query: str, *arguments: object) -> list[tuple[object, ...]]:
    """What a query over the home's store gives."""
    with closing(sqlite3.connect(home / "state.db")) as db:
        return [tuple(row) for row in db.execute(query, arguments)]


async def appears(home: Path, query: str, *arguments: object) -> None:
    """Wait until a query over the home's store gives something."""
    until = time.monotonic() + PATIENCE
    while not rows(home, query, *arguments):
        assert time.monotonic() < until, query
        await asyncio.sleep(0.005)


def said(home: Path, session_id: str, role: str = "user") -> list[object]:
    """What was said in a session by one side, in order."""
    query = "SELECT content FROM messages WHERE session_id = ? AND role = ? ORDER BY id"
    return [row[0] for row in rows(home, query, session_id, role)]
