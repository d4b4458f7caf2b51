"""Makes one home: starts a stock Hermes in it, simulates people who talk to it, and records their messages."""

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

from scripts.stock_homes.loopback import GROW, Irc, Model, serving
from scripts.stock_homes.recipes import Recipe

BOT, ROOM = "bot", "#room"
KEY = "a-key-for-loopback-alone"
START, REPLY = 90.0, 60.0
AT_ONCE = " & "
PAUSE_SECONDS = 1.0
"""Pause after a reply, which is sent before the turn is over: an earlier message would interrupt the turn."""
STEP = re.compile(r"(?P<who>[\w-]+)(?P<how>#|\$|@@|@|)> (?P<text>.+)")
CONFIG = """\
model:
  {{provider: custom, default: loop, base_url: "http://127.0.0.1:{port}/v1", api_key: none, context_length: {window}}}
compression: {{in_place: {in_place}, threshold: 0.5, protect_first_n: 1, protect_last_n: 4}}
approvals: {{destructive_slash_confirm: false}}
"""


@dataclass(frozen=True)
class Said:
    """A person's message, and whether it was answered. Simultaneous messages have the same number."""

    chat: str
    text: str
    answered: bool
    number: int


class Stock:
    """A stock Hermes in one home."""

    def __init__(
        self, python: Path, home: Path, recipe: Recipe, parts: tuple[Model, Irc], ports: tuple[int, int, int]
    ) -> None:
        self._python, self._home, self._recipe = python, home, recipe
        self._model_port, self._irc_port, self._api_port = ports
        self._process: asyncio.subprocess.Process | None = None
        self._kill = recipe.kill
        self._named: dict[str, str] = {}
        self.model, self.irc = parts
        self.said: list[Said] = []

    async def start(self) -> None:
        """Start the gateway and wait until it has joined the room."""
        self.irc.joined.clear()
        self._process = await self._run("gateway", "run", kill=self._kill)
        self._kill = None
        async with asyncio.timeout(START):
            await self.irc.joined.wait()
            await asyncio.to_thread(self._await_api)

    async def stop(self) -> None:
        """Kill the process with SIGKILL after all replies, unless it has already ended."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        self._process = None

    async def step(self, step: str) -> None:
        """Run one step of a recipe: one or several simultaneous actions."""
        if step == "restart":
            await self.stop()
            await self.start()
            return
        acts = step.split(AT_ONCE)
        self.model.meet(sum(GROW in act for act in acts))
        number = len(self.said)
        self.said += await asyncio.gather(*(self._act(act, number) for act in acts))

    async def _act(self, act: str, number: int) -> Said:
        found = STEP.fullmatch(act)
        assert found, act
        who, how, text = found["who"], found["how"], found["text"]
        ask = {"": self._tell, "#": self._tell_room, "@": self._ask, "@@": self._ask_on, "$": self._type}[how]
        answered = await self._survive(ask(who, text), text, by_itself=how == "$")
        return Said(f"{ROOM}:{who}" if how == "#" else who, text, answered, number)

    async def _survive(self, asking: Coroutine[None, None, bool], text: str, *, by_itself: bool) -> bool:
        """Return True if an answer came, False if the process ended first, at its own step or at the random moment. A
        terminal is a separate process."""
        assert self._process is not None
        answer: asyncio.Task[bool] = asyncio.create_task(asking)
        ended: asyncio.Task[object] = asyncio.create_task(answer_never() if by_itself else self._process.wait())
        try:
            if self._recipe.delay is not None and GROW in text:
                await self._kill_while_summarising(self._recipe.delay)
            await asyncio.wait({answer, ended}, timeout=REPLY, return_when=asyncio.FIRST_COMPLETED)
            return answer.done() and answer.exception() is None and answer.result()
        finally:
            answer.cancel()
            ended.cancel()
            await asyncio.gather(answer, ended, return_exceptions=True)

    async def _kill_while_summarising(self, delay: float) -> None:
        """Kill the process a given time after its model was asked for a summary."""
        self.model.summarising.clear()
        async with asyncio.timeout(REPLY):
            await self.model.summarising.wait()
        await asyncio.sleep(delay)
        await self.stop()

    async def _tell(self, who: str, text: str) -> bool:
        return await self._hear(who, BOT, who, text)

    async def _tell_room(self, who: str, text: str) -> bool:
        return await self._hear(who, ROOM, ROOM, f"{BOT}: {text}")

    async def _hear(self, who: str, target: str, answers_in: str, text: str) -> bool:
        """Send a message, and wait for the last reply: the one after the tool call, if any."""
        while not self.irc.heard.empty():
            self.irc.heard.get_nowait()
        self.irc.say(who, target, text)
        while True:
            heard_in, reply = await self.irc.heard.get()
            if heard_in == answers_in and (text.startswith("/") or reply.startswith("reply ")):
                await asyncio.sleep(PAUSE_SECONDS)
                return True

    async def _ask(self, session: str, text: str) -> bool:
        self._named[session] = await asyncio.to_thread(self._post, session, text)
        return True

    async def _ask_on(self, session: str, text: str) -> bool:
        self._named[session] = await asyncio.to_thread(self._post, self._named.get(session, session), text)
        return True

    async def _type(self, who: str, text: str) -> bool:
        kill = None if (self._home / "stock.killed").exists() else self._recipe.kill
        process = await self._run("chat", "-Q", "-q", text, "--resume", self._session_of(who), kill=kill)
        return await process.wait() == 0

    def _session_of(self, who: str) -> str:
        with closing(sqlite3.connect(self._home / "state.db")) as db:
            rows = db.execute("SELECT session_key, entry_json FROM gateway_routing")
            bound = (json.loads(entry)["session_id"] for key, entry in rows if key.endswith(f":{who}"))
            return str(next(bound, who))

    def _post(self, session: str, text: str) -> str:
        """Send a request over the HTTP API; return the session id of the response."""
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
        """Change a setting with the program's own command."""
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
async def open_stock(python: Path, home: Path, recipe: Recipe, *, first: int = 1) -> AsyncIterator[Stock]:
    """Run a stock Hermes in a home with a room and a model whose replies are numbered from `first` on; always stop it
    at the end."""
    async with AsyncExitStack() as stack:
        irc = Irc()
        model = Model(first)
        model_port = await stack.enter_async_context(serving(model))
        irc_port = await stack.enter_async_context(serving(irc))
        configure(home, recipe, model_port)
        stock = Stock(python, home, recipe, (model, irc), (model_port, irc_port, _free_port()))
        try:
            yield stock
        finally:
            await stock.stop()


async def make_home(python: Path, home: Path, recipe: Recipe) -> list[Said]:
    """Make the home of a recipe, as the killed process left it."""
    async with open_stock(python, home, recipe) as stock:
        await stock.start()
        for step in recipe.steps:
            await stock.step(step)
    return stock.said


async def answer_never() -> None:
    """Wait until the timeout of the other side."""
    await asyncio.Event().wait()


def configure(home: Path, recipe: Recipe, port: int) -> None:
    """Return the settings of a home whose model is on a port of this machine."""
    home.mkdir(parents=True, exist_ok=True)
    config = CONFIG.format(port=port, window=recipe.window, in_place=str(recipe.in_place).lower())
    (home / "config.yaml").write_text(config, encoding="utf-8")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
