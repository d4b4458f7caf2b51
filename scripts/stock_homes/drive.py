"""Makes one home: starts a stock Hermes in it, has people talk to it, and writes down what was said."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import urllib.request
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.stock_homes.loopback import GROW, Irc, Model, serving
from scripts.stock_homes.recipes import Recipe

BOT, ROOM = "bot", "#room"
KEY = "a-key-for-loopback-alone"
START, REPLY = 90.0, 60.0
PAUSE = 1.0
"""Seconds after a reply: it is sent before the turn is over, and what comes meanwhile interrupts it."""
STEP = re.compile(r"(?P<who>[\w-]+)(?P<how>#|\$|@@|@|)> (?P<text>.+)")
CONFIG = """\
model:
  {{provider: custom, default: loop, base_url: "http://127.0.0.1:{port}/v1", api_key: none, context_length: {window}}}
compression: {{in_place: {in_place}, threshold: 0.5, protect_first_n: 1, protect_last_n: 4}}
"""


@dataclass(frozen=True)
class Said:
    """One message of a person, and whether an answer came."""

    chat: str
    text: str
    answered: bool


class Stock:
    """A stock Hermes in one home."""

    def __init__(self, python: Path, home: Path, recipe: Recipe, irc: Irc, ports: tuple[int, int, int]) -> None:
        self._python, self._home, self._recipe = python, home, recipe
        self._model_port, self._irc_port, self._api_port = ports
        self._process: asyncio.subprocess.Process | None = None
        self._kill = recipe.kill
        self._named: dict[str, str] = {}
        self.irc = irc
        self.said: list[Said] = []
        self.requests: list[list[dict[str, Any]]] = []

    async def start(self) -> None:
        """Start the gateway and wait until it has joined the room."""
        self.irc.joined.clear()
        self._process = await self._run("gateway", "run", kill=self._kill)
        self._kill = None
        async with asyncio.timeout(START):
            await self.irc.joined.wait()
            await asyncio.to_thread(self._await_api)

    async def stop(self) -> None:
        """End it with a SIGKILL, as everything that was said is answered, or it is gone already."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        self._process = None

    async def step(self, step: str) -> None:
        """What a person does."""
        if step == "restart":
            await self.stop()
            await self.start()
            return
        found = STEP.fullmatch(step)
        assert found, step
        who, how, text = found["who"], found["how"], found["text"]
        ask = {"": self._tell, "#": self._tell_room, "@": self._ask, "@@": self._ask_on, "$": self._type}[how]
        answered = await self._survive(ask(who, text), text)
        chat = {"#": ROOM, "$": who}.get(how, who)
        self.said.append(Said(chat, text, answered))

    async def _survive(self, asking: Coroutine[None, None, bool], text: str) -> bool:
        """Whether an answer came; False when the process ended first, by its own step or at the drawn moment."""
        assert self._process is not None
        answer: asyncio.Task[bool] = asyncio.create_task(asking)
        ended: asyncio.Task[int] = asyncio.create_task(self._process.wait())
        delay = self._recipe.delay if GROW in text else None
        try:
            if delay is not None and not (await asyncio.wait({answer}, timeout=delay))[0]:
                await self.stop()
            await asyncio.wait({answer, ended}, timeout=REPLY, return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.exception() is None and answer.result()
        finally:
            answer.cancel()
            ended.cancel()
            await asyncio.gather(answer, ended, return_exceptions=True)

    async def _tell(self, who: str, text: str) -> bool:
        return await self._hear(who, BOT, who, text)

    async def _tell_room(self, who: str, text: str) -> bool:
        return await self._hear(who, ROOM, ROOM, f"{BOT}: {text}")

    async def _hear(self, who: str, target: str, answers_in: str, text: str) -> bool:
        """Say it, and wait for the last reply: the one after the tool where there is a tool."""
        while not self.irc.heard.empty():
            self.irc.heard.get_nowait()
        self.irc.say(who, target, text)
        while True:
            heard_in, reply = await self.irc.heard.get()
            if heard_in == answers_in and (text.startswith("/") or reply.startswith("reply ")):
                await asyncio.sleep(PAUSE)
                return True

    async def _ask(self, session: str, text: str) -> bool:
        self._named[session] = await asyncio.to_thread(self._post, session, text)
        return True

    async def _ask_on(self, session: str, text: str) -> bool:
        self._named[session] = await asyncio.to_thread(self._post, self._named.get(session, session), text)
        return True

    async def _type(self, who: str, text: str) -> bool:
        process = await self._run("chat", "-Q", "-q", text, "--resume", self._session_of(who))
        return await process.wait() == 0

    def _session_of(self, who: str) -> str:
        with closing(sqlite3.connect(self._home / "state.db")) as db:
            rows = db.execute("SELECT session_key, entry_json FROM gateway_routing")
            return str(next(json.loads(entry)["session_id"] for key, entry in rows if key.endswith(f":{who}")))

    def _post(self, session: str, text: str) -> str:
        """Ask over the HTTP API; the session id that the answer names."""
        padded = f"{text} {'lorem ipsum ' * 3_500}" if "fill" in text else text
        body = {"model": "loop", "messages": [{"role": "user", "content": padded}]}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "X-Hermes-Session-Id": session}
        url = f"http://127.0.0.1:{self._api_port}/v1/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=REPLY) as reply:
            return str(reply.headers.get("X-Hermes-Session-Id") or session)

    def _await_api(self) -> None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._api_port}/health", timeout=5):
            pass

    async def configure(self, name: str, value: str) -> bool:
        """Change a setting with its own command."""
        return await (await self._run("config", "set", name, value)).wait() == 0

    async def _run(self, *arguments: str, kill: str | None = None) -> asyncio.subprocess.Process:
        env = {
            **os.environ,
            "HERMES_HOME": str(self._home), "IRC_SERVER": "127.0.0.1", "IRC_PORT": str(self._irc_port),
            "IRC_CHANNEL": ROOM, "IRC_USE_TLS": "0", "IRC_NICKNAME": BOT, "GATEWAY_ALLOW_ALL_USERS": "true",
            "API_SERVER_ENABLED": "true", "API_SERVER_KEY": KEY, "API_SERVER_PORT": str(self._api_port),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        if kill is not None:
            env["STOCK_KILL"] = kill
        launcher = Path(__file__).with_name("launcher.py")
        with (self._home / "stock.out").open("ab") as out:
            return await asyncio.create_subprocess_exec(
                str(self._python), str(launcher), *arguments, env=env, stdout=out, stderr=out, cwd=self._home
            )


@asynccontextmanager
async def open_stock(python: Path, home: Path, recipe: Recipe) -> AsyncIterator[Stock]:
    """A stock Hermes in a home, with a model and a room; it is ended at the end, whatever it does."""
    async with AsyncExitStack() as stack:
        irc = Irc()
        model = Model()
        model_port = await stack.enter_async_context(serving(model))
        irc_port = await stack.enter_async_context(serving(irc))
        _configure(home, recipe, model_port)
        stock = Stock(python, home, recipe, irc, (model_port, irc_port, _free_port()))
        stock.requests = model.requests
        try:
            yield stock
        finally:
            await stock.stop()


async def make_home(python: Path, home: Path, recipe: Recipe) -> list[Said]:
    """The home of a recipe, left as the killed process left it."""
    async with open_stock(python, home, recipe) as stock:
        await stock.start()
        for step in recipe.steps:
            await stock.step(step)
    return stock.said


def _configure(home: Path, recipe: Recipe, port: int) -> None:
    home.mkdir(parents=True, exist_ok=True)
    config = CONFIG.format(port=port, window=recipe.window, in_place=str(recipe.in_place).lower())
    (home / "config.yaml").write_text(config, encoding="utf-8")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
