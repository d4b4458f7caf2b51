"""People who share one agent: a gateway on chat platforms and HTTP, Honcho on the embedded server, and a model that
obeys every speaker."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx

from hermes.app import App
from hermes.clock import SystemClock
from hermes.config_file import read_entries
from hermes.configuration import configure
from hermes.embedded.connect import connect
from hermes.fence import strip_fences
from hermes.gateway.platform import Chat, Inbound
from hermes.home import Home
from hermes.hosting import OPENERS, open_gateway
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.store.people import mark
from hermes.store.store import Store
from hermes.types import Json, ToolCall
from tests.conftest import Ran
from tests.embedded.clients import client_of, place_of
from tests.gateway.core import FakePlatform
from tests.gateway.processes import clean_env, rows, write_config
from tests.llm.scripted import ScriptedAnswer, ScriptedModel
from tests.memory_server.talking import settle

OWNER, GROUP = "111", "-100"
TOLD = re.compile(r"My secret word about \w+ is (\w+)\.")
CALLS = "Call these tools: "
UNSENT = "SELECT 1 FROM hermes_queue WHERE queue LIKE 'memory:%' AND state NOT IN ('done', 'dead')"
PAUSE_SECONDS = 0.02
SETTINGS: dict[str, object] = {
    "api.enabled": True,
    "api.users": "guests",
    "gateway.allow": "*",
    "memory.provider": "honcho",
    "memory.deadline": 60,
    "memory.first_deadline": 60,
    "memory.review_every": 0,
    "compression.idle": 0,
    "display.memory_notices": False,
    "sessions.auto_title": False,
}
"""Settings of a gateway whose turns wait for memory, without background activity."""
Call = tuple[str, dict[str, Json]]
Tellings = dict[str, list[dict[str, Any]]]
SEARCH: Call = ("honcho_search", {"query": "secret word", "max_tokens": 2000})
TOOLS: tuple[Call, ...] = (
    *(
        (tool, {**given, "peer": peer})
        for peer in ("user", "ai")
        for tool, given in (
            ("honcho_profile", {}),
            SEARCH,
            ("honcho_context", {}),
            ("honcho_reasoning", {"query": "What is the secret word?"}),
            ("honcho_conclude", {"list": True}),
        )
    ),
    ("session_search", {"query": "secret word", "limit": 20}),
)
"""Every tool that reads memory, about the person and about the agent."""


@dataclass(frozen=True)
class Seat:
    """A place where someone talks. Over the API, the `user` None is the owner."""

    by: Literal["telegram", "discord", "slack", "group", "id", "key"]
    user: str | None = None
    name: str = ""
    """The session id or key that an API client sends."""
    alt: str | None = None
    profile: str = "default"


def telegram(user: str, alt: str | None = None) -> Seat:
    return Seat("telegram", user, alt=alt)


def discord(user: str) -> Seat:
    return Seat("discord", user)


def slack(user: str) -> Seat:
    return Seat("slack", user)


def in_group(user: str) -> Seat:
    return Seat("group", user)


def by_id(user: str | None, name: str, profile: str = "default") -> Seat:
    return Seat("id", user, name, profile=profile)


def by_key(user: str | None, name: str) -> Seat:
    return Seat("key", user, name)


def secret_of(place: str) -> str:
    """Return a place's secret word, the same in every run."""
    return _random_word(f"secret of {place}")


def hint_of(place: str) -> str:
    """Return a second word, by which the secret can be searched for."""
    return _random_word(f"hint of {place}")


def _random_word(seed: str) -> str:
    chance = random.Random(seed)
    return "".join(chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(6))


def told_in(place: str) -> str:
    """Return the sentence that contains a place's secret."""
    return f"My secret word about {hint_of(place)} is {secret_of(place)}."


def searches(places: Iterable[str]) -> list[Call]:
    """Return tool calls that search for the secrets of places."""
    return [("honcho_search", {"query": hint_of(place)}) for place in sorted(places)]


def secrets_in(text: str, places: Iterable[str]) -> set[str]:
    """Return the places whose secret a text contains."""
    return {place for place in places if secret_of(place) in text}


def obey(request: ModelRequest) -> ScriptedAnswer:
    """Call the tools that the person names, and repeat a secret in the reply. Questions are not repeated, since they
    would crowd out search hits."""
    last = request.messages[-1]
    if last["role"] != "user":
        return Reply("Done.")
    said = strip_fences(str(last["content"])).strip()
    _, wants, calls = said.partition(CALLS)
    if not wants:
        return Reply(f"I noted it: {said}" if TOLD.search(said) else "Fine.")
    named = enumerate(json.loads(calls))
    return Reply(tool_calls=tuple(ToolCall(f"c{place}", tool, json.dumps(given)) for place, (tool, given) in named))


@dataclass
class PluginConsole:
    """A running gateway of one profile."""

    store: Store
    model: ScriptedModel
    platforms: dict[str, FakePlatform]
    api: httpx.AsyncClient

    async def say(self, seat: Seat, text: str, *calls: Call) -> str:
        """Say something; return all that the model and the person read in that turn."""
        before = len(self.model.requests)
        message = f"{text} {CALLS}{json.dumps(calls)}" if calls else text
        reply = await (self._post if seat.by in ("id", "key") else self._chat)(seat, message)
        return "\n".join([*(str(request.messages) for request in self.model.requests[before:]), reply])

    async def _chat(self, seat: Seat, text: str) -> str:
        user = seat.user or ""
        chat = Chat("telegram", "group", GROUP) if seat.by == "group" else Chat(seat.by, "dm", user)
        platform = self.platforms[chat.platform]
        said = Inbound(chat, secrets.token_hex(8), text, author_id=user, author_name=user, author_alt=seat.alt)
        before = len(platform.texts(chat.chat_id))
        await platform.deliver(said)
        await platform.until(lambda: len(platform.texts(chat.chat_id)) > before)
        return "\n".join(platform.texts(chat.chat_id)[before:])

    async def _post(self, seat: Seat, text: str) -> str:
        header = b"X-Hermes-Session-Id" if seat.by == "id" else b"X-Hermes-Session-Key"
        body = {"messages": [{"role": "user", "content": text}], **({} if seat.user is None else {"user": seat.user})}
        sent = {header: seat.name.encode("latin-1")}
        answer = await self.api.post("/v1/chat/completions", json=body, headers=sent)
        if answer.status_code == httpx.codes.FORBIDDEN:
            return answer.text
        assert answer.status_code == httpx.codes.OK, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])


@asynccontextmanager
async def open_desk(home: Home, env: dict[str, str]) -> AsyncIterator[PluginConsole]:
    """Run the gateway that the profile's config.yaml describes, with chat platforms in memory."""
    app = App(home, env, configure(read_entries(home.config_file), env).checked(), SystemClock())
    async with await app.open_store() as store:
        model, stopping = ScriptedModel(obey), asyncio.Event()
        platforms = {name: FakePlatform(name) for name in ("telegram", "discord", "slack")}
        gateway = open_gateway(app, store, model)
        running = asyncio.create_task(gateway.run([*platforms.values()], stopping))
        served: Any = OPENERS["api"](app, store, model, gateway)
        try:
            transport = httpx.ASGITransport(served.app())
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as api:
                yield PluginConsole(store, model, platforms, api)
        finally:
            stopping.set()
            await running


@dataclass
class Neighbours:
    """The running gateways of a home, by profile, and its memory server."""

    folder: Path
    workspace: str
    desks: dict[str, PluginConsole] = field(default_factory=dict)
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def home(self) -> Path:
        return self.folder / ".hermes"

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "LOGNAME": "ann"}

    def homes(self) -> list[Home]:
        return list(Home(self.home).all())

    def write_config(self, *profiles: str) -> None:
        """Write config.yaml for the home and its profiles."""
        for home in (self.home, *(self.home / "profiles" / name for name in profiles)):
            write_config(home, SETTINGS)

    def configure(self, document: Json) -> None:
        (self.home / "honcho.json").write_text(json.dumps(document), encoding="utf-8")

    @contextmanager
    def configured(self, **keys: Json) -> Iterator[None]:
        """Set keys of honcho.json while the block runs."""
        before = (self.home / "honcho.json").read_text(encoding="utf-8")
        self.configure({**json.loads(before), **keys})
        try:
            yield
        finally:
            (self.home / "honcho.json").write_text(before, encoding="utf-8")

    async def hermes(self, *arguments: str, said: str = "", directory: Path | None = None) -> Ran:
        """Run a command of the owner without a terminal."""
        env = clean_env(**self.env, HERMES_HOME=str(self.home), HERMES_MEMORY_PROVIDER="")
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "hermes", *arguments],
            cwd=directory or self.folder, env=env, input=said, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    async def start(self) -> None:
        """Start the gateway of every profile."""
        for home in self.homes():
            self.desks[home.name] = await self._running.enter_async_context(open_desk(home, self.env))

    async def stop(self) -> None:
        """Stop all gateways gracefully."""
        await self._running.aclose()
        self.desks = {}

    async def mark_owner(self, user: str) -> None:
        await self.desks["default"].store.write(lambda tx: mark(tx, "telegram", user, is_owner=True, now=1.0))

    async def say(self, seat: Seat, text: str, *calls: Call) -> str:
        return await self.desks[seat.profile].say(seat, text, *calls)

    async def settle(self) -> None:
        """Wait until memory has received everything and learned from it."""
        for home in self.homes():
            while rows(home.path, UNSENT):  # noqa: ASYNC110 - another thread delivers
                await asyncio.sleep(PAUSE_SECONDS)
        with self.at_server() as http:
            await asyncio.to_thread(settle, http)

    @contextmanager
    def at_server(self) -> Iterator[httpx.Client]:
        """Yield a client of the memory server, in the workspace."""
        with client_of(connect(place_of(self.home))) as client:
            client.base_url = client.base_url.join(f"/v3/workspaces/{self.workspace}")
            yield client

    def tellings(self) -> Tellings:
        """Return the messages on the server that contain a secret, by secret."""
        found: Tellings = {}
        with self.at_server() as http:
            for session in every(http, "/sessions/list"):
                for one in every(http, f"/sessions/{session['id']}/messages/list"):
                    if told := TOLD.fullmatch(one["content"]):
                        found.setdefault(told[1], []).append(one)
        return found

    def find_telling(self, place: str) -> dict[str, Any]:
        """Return the message on the server that contains a place's secret."""
        [one] = self.tellings()[secret_of(place)]
        return one

    def members(self, session: str) -> set[str]:
        """Return the peers of a session on the server."""
        with self.at_server() as http:
            return {one["id"] for one in http.get(f"/sessions/{session}/peers").raise_for_status().json()["items"]}


def every(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    """Return all items of a list on the server, from all pages."""
    found: list[dict[str, Any]] = []
    page: dict[str, Any] = {"pages": 1, "page": 0}
    while page["page"] < page["pages"]:
        answer = http.post(path, params={"page": page["page"] + 1, "size": 100}, json={})
        page = answer.raise_for_status().json()
        found += page["items"]
    return found
