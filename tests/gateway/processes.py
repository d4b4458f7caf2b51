"""Gateway processes, and models on loopback for them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hermes.types import Json
from tests.db.processes import ROOT
from tests.gateway.bot_api import TOKEN, BotApi
from tests.gateway.echo_model import EchoModel
from tests.llm.beside import beside
from tests.llm.loopback import Answer, LoopbackServer

TIMEOUT_SECONDS = 60.0
IGNORED_WARNINGS = ("ignore:Binding:DeprecationWarning", "ignore:'audioop' is deprecated:DeprecationWarning")
"""Python 3.12.0 to 3.12.3 warn of numbered parameters by mistake; discord.py imports what it uses for voice."""
QUIET = ("HERMES_MEMORY_PROVIDER", "HERMES_AUTO_TITLE", "HERMES_MODEL_TOOLS")
OWN = ("HERMES_", "OPENAI_", "TELEGRAM_", "DISCORD_", "SLACK_", "API_SERVER_")


def clean_env(**more: str) -> dict[str, str]:
    """Return the environment without variables that configure hermes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN) or name in QUIET}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "NO_PROXY": "127.0.0.1", **more}


@dataclass(frozen=True)
class LoopbackModel:
    """A running model."""

    server: LoopbackServer

    @property
    def base_url(self) -> str:
        return self.server.base_url

    def hold(self) -> None:
        """Hold the responses to later requests."""
        self.server.may_answer.clear()

    def go_on(self) -> None:
        """Release held responses, and stop holding."""
        self.server.may_answer.set()

    def requests(self) -> list[list[dict[str, str]]]:
        """The messages of every request so far, in order."""
        return [request.body["messages"] for request in list(self.server.requests)]

    def asked(self) -> list[list[str]]:
        """The people's messages in each request so far."""
        return [[m["content"] for m in messages if m["role"] == "user"] for messages in self.requests()]


@contextmanager
def echo_model(*, summary: float = 0.0, delay: float = 0.0, pause: float = 0.0) -> Iterator[LoopbackModel]:
    """Yield a running echo model."""
    with beside(EchoModel(summary=summary, delay=delay, pause=pause)) as server:
        yield LoopbackModel(server)


@contextmanager
def answering_model(*answers: Answer) -> Iterator[LoopbackModel]:
    """Yield a model with these answers, which may wait for the test in the middle."""
    with beside(LoopbackServer(answers)) as server:
        yield LoopbackModel(server)


@contextmanager
def scripted_model(answers: Sequence[Json] = (), *, then: Json = None) -> Iterator[LoopbackModel]:
    """Yield the scripted model of `tests.llm.loopback`; after its answers it echoes, unless `then` is given."""
    with beside(LoopbackServer.from_script({"answers": answers, "then": then or {"echo": True}})) as server:
        yield LoopbackModel(server)


def write_config(home: Path, settings: Mapping[str, object]) -> None:
    """Write config.yaml with `settings`, whose names are dotted."""
    home.mkdir(parents=True, exist_ok=True)
    blocks: dict[str, dict[str, object]] = {}
    for name, value in settings.items():
        block, _, leaf = name.partition(".")
        blocks.setdefault(block, {})[leaf] = value
    (home / "config.yaml").write_text(json.dumps(blocks), encoding="utf-8")


class GatewayProcess:
    """A `hermes gateway run` process of one home. `url` is the address of its API."""

    def __init__(self, home: Path, *, profile: str | None = None, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self._root = home.parent.parent if profile else home
        self._arguments = ["-p", profile] if profile else []
        self._env = clean_env(**{**(env or {}), "HERMES_HOME": str(self._root)})
        self._process: subprocess.Popen[bytes] | None = None
        self._command = ["-m", "hermes", *self._arguments, "gateway", "run"]
        self.url = ""

    def wrap(self, program: str) -> None:
        """Start the gateway through this program."""
        self._command = ["-c", program]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def begin(self) -> Self:
        """Start the process without waiting."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", *(f"-W{one}" for one in IGNORED_WARNINGS), *self._command],
                cwd=ROOT,
                env=self._env,
                stdout=output,
                stderr=output,
            )
        return self

    def start(self) -> Self:
        """Start the process if needed, and wait until its API responds."""
        if not self.running:
            self.begin()
        until = time.monotonic() + TIMEOUT_SECONDS
        while not (url := self._reported()):
            assert self.running, self.output()
            assert time.monotonic() < until, "the gateway did not start"
            time.sleep(0.02)
        self.url = url
        return self

    def _reported(self) -> str:
        """Return the API's URL once this process has reported it."""
        owner = self.rows("SELECT owner FROM hermes_leases WHERE name = 'gateway'")
        if not owner or f":{self.pid}:" not in str(owner[0][0]):
            return ""
        found = self.rows("SELECT detail FROM hermes_gateway_status WHERE part = 'api' AND state = 'ok'")
        return str(found[0][0]) if found else ""

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        process = self._process  # another thread may start the next one as soon as this one has ended
        assert process is not None
        process.kill()
        process.wait(TIMEOUT_SECONDS)

    def wait_sent(self) -> None:
        """Wait until all outbound messages are recorded as sent; a kill before would repeat them."""
        wait_until(lambda: not self.rows("SELECT 1 FROM hermes_queue WHERE queue = 'outbound' AND state = 'waiting'"))

    def stop(self) -> None:
        """Stop the process gracefully."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self.wait() == 0, self.output()

    def wait(self) -> int:
        """Wait until the process ends; return its exit code."""
        assert self._process is not None
        return self._process.wait(TIMEOUT_SECONDS)

    def hermes(self, *arguments: str) -> str:
        """Run another command in the same home; return its output."""
        ran = subprocess.run(
            [sys.executable, "-m", "hermes", *self._arguments, *arguments],
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def output(self) -> str:
        """Everything the process printed, over all its lives, and its log."""
        files = [self.home / "output.txt", *self.home.glob("logs/*")]
        return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())

    def status(self) -> dict[str, str]:
        """The last reported state of each part."""
        found = self.rows("SELECT part, state || ' ' || detail FROM hermes_gateway_status")
        return {str(part): str(told) for part, told in found}

    def rows(self, query: str, *arguments: object) -> list[tuple[object, ...]]:
        """Query the gateway's store; [] while it does not exist yet."""
        with suppress(sqlite3.OperationalError):
            return rows(self.home, query, *arguments)
        return []

    def said(self, role: str = "user") -> list[str]:
        """Return the messages in the store, in order."""
        return [str(text) for (text,) in self.rows("SELECT content FROM messages WHERE role = ? ORDER BY id", role)]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()


class PlatformGateway(GatewayProcess):
    """A gateway on platforms with these settings, open to everybody. The `with` block begins before it is ready."""

    def __init__(self, home: Path, model: LoopbackModel, settings: Mapping[str, object]) -> None:
        super().__init__(home)
        write_config(home, {**model_settings(model), "gateway.allow": "*", **settings})

    def __enter__(self) -> Self:
        return self.begin()


class BotGateway(PlatformGateway):
    """A gateway on the loopback Bot API, which keeps updates until the gateway is ready."""

    def __init__(
        self, home: Path, api: BotApi, model: LoopbackModel, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(home, model, {"telegram.token": TOKEN, "telegram.base_url": api.base_url, **(settings or {})})


def model_settings(model: LoopbackModel) -> dict[str, object]:
    """Return settings of a home with this model and without background work."""
    return {
        "model.base_url": model.base_url,
        "model.default": "echo",
        "memory.review_every": 0,
        "compression.idle": 0,
    }


def api_settings(model: LoopbackModel, **more: object) -> dict[str, object]:
    """Return settings of a home whose gateway serves the API with this model."""
    given = {name.replace("__", "."): value for name, value in more.items()}
    return {"api.enabled": True, "api.port": 0, **model_settings(model), **given}


def rows(home: Path, query: str, *arguments: object) -> list[tuple[object, ...]]:
    """Return the rows of a query over the home's store."""
    with closing(sqlite3.connect(f"file:{home / 'state.db'}?mode=ro", uri=True, timeout=10)) as db:
        return [tuple(row) for row in db.execute(query, arguments)]


async def appears(home: Path, query: str, *arguments: object) -> None:
    """Wait until a query over the home's store returns rows."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while not rows(home, query, *arguments):
        assert time.monotonic() < until, query
        await asyncio.sleep(0.005)


def wait_until(look: Callable[[], object], *, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until `look()` is true, for facts without an event."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def said(home: Path, session_id: str, role: str = "user") -> list[object]:
    """Return the messages of a session by one role, in order."""
    query = "SELECT content FROM messages WHERE session_id = ? AND role = ? ORDER BY id"
    return [row[0] for row in rows(home, query, session_id, role)]


def sessions(home: Path) -> list[str]:
    """Return the ids of the home's sessions, oldest first."""
    return [str(row[0]) for row in rows(home, "SELECT id FROM sessions ORDER BY rowid")]
