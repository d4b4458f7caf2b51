"""A gateway and a model as processes of their own, for tests from outside."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx

from hermes.types import Json
from tests.gateway.bot_api import TOKEN, BotApi

ROOT = Path(__file__).resolve().parents[2]
OWN = ("HERMES_", "OPENAI_", "TELEGRAM_", "API_SERVER_")


def clean_env(**more: str) -> dict[str, str]:
    """The environment without what would configure hermes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "NO_PROXY": "127.0.0.1", **more}


@dataclass
class ModelProcess:
    """The scripted model of `tests.llm.loopback`, in its own process."""

    folder: Path
    answers: Sequence[Json] = ()
    then: Json = field(default_factory=lambda: {"echo": True})

    def __enter__(self) -> Self:
        script = self.folder / "script.json"
        script.write_text(json.dumps({"answers": list(self.answers), "then": self.then}), encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.llm.loopback", "--script", str(script)],
            cwd=ROOT,
            env=clean_env(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.base_url = f"http://127.0.0.1:{json.loads(self._process.stdout.readline())['port']}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def asked(self) -> list[list[str]]:
        """What people said in each request so far."""
        requests = httpx.get(self.base_url.removesuffix("/v1") + "/_requests", trust_env=False).json()
        return [[m["content"] for m in body["messages"] if m["role"] == "user"] for body in requests]


@dataclass
class GatewayProcess:
    """`hermes gateway run` in a home of its own, on the loopback Bot API."""

    home: Path
    api: BotApi
    model: ModelProcess
    settings: Mapping[str, Json] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()

    def start(self) -> Self:
        """Start it; it is not ready yet."""
        self.home.mkdir(parents=True, exist_ok=True)
        flat = {"gateway.allow": "*", "telegram.token": TOKEN, "telegram.base_url": self.api.base_url, **self.settings}
        flat |= {"model.base_url": self.model.base_url, "model.default": "loop-1", "memory.review_every": 0}
        (self.home / "config.yaml").write_text(_nested(flat), encoding="utf-8")
        with (self.home / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "hermes", "gateway", "run"],
                cwd=ROOT,
                env=clean_env(HERMES_HOME=str(self.home)),
                stdout=output,
                stderr=output,
            )
        return self

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it at once, wherever it is."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it in good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(40) == 0, self.output()

    def hermes(self, *arguments: str) -> str:
        """Run another command in the same home; what it printed."""
        ran = subprocess.run(
            [sys.executable, "-m", "hermes", *arguments],
            cwd=ROOT,
            env=clean_env(HERMES_HOME=str(self.home)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def status(self) -> dict[str, str]:
        """What each part last told of itself."""
        rows = self.rows("SELECT part, state || ' ' || detail FROM hermes_gateway_status")
        return {str(part): str(told) for part, told in rows}

    def output(self) -> str:
        """All it printed, over all its lives, and its log."""
        files = [self.home / "output.txt", *self.home.glob("logs/*")]
        return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())

    def rows(self, query: str) -> list[tuple[Json, ...]]:
        """What is in its store."""
        try:
            with sqlite3.connect(f"file:{self.home / 'state.db'}?mode=ro", uri=True, timeout=10) as db:
                found: list[tuple[Json, ...]] = db.execute(query).fetchall()
            return found
        except sqlite3.OperationalError:  # not made yet
            return []
        finally:
            if "db" in locals():
                db.close()

    def said(self, role: str = "user") -> list[str]:
        """The messages of the store, in order."""
        return [str(text) for (text,) in self.rows(f"SELECT content FROM messages WHERE role = '{role}' ORDER BY id")]


def wait_until(look: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Wait until `look()` is true, for what announces itself in no other way."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _nested(flat: Mapping[str, Json]) -> str:
    """Settings as a YAML file, which JSON is too."""
    nested: dict[str, dict[str, Json]] = {}
    for name, value in flat.items():
        block, _, leaf = name.partition(".")
        nested.setdefault(block, {})[leaf] = value
    return json.dumps(nested)
