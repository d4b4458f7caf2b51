"""Whatever happens to a conversation, Honcho has one session for it, with the messages of people and agent."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from hermes.agent.builtin_tools import PROMPT as DELEGATE
from hermes.agent.review import PROMPT as REVIEW
from hermes.clock import SystemClock
from hermes.compression.summarise import PROMPT as SUMMARISE
from hermes.db.leases import new_owner
from hermes.db.queue_items import items
from hermes.fence import strip_fences
from hermes.honcho.plugin import HonchoPlugin
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.deliveries import Deliveries
from hermes.memory.values import Conversation, Speaker
from hermes.store.store import Store
from hermes.types import ToolCall
from tests.gateway.bot_api import USERNAME, BotApi
from tests.gateway.core import Core, message, running_core
from tests.gateway.processes import BotGateway, scripted_model, wait_until
from tests.honcho.configuring import Machine
from tests.honcho.writing import Arrived
from tests.llm.scripted import ScriptedAnswer
from tests.memory.remembering import begin, turn
from tests.memory_server.serving import SECRET, Served, running

pytestmark = pytest.mark.processes
CHATS = {"7": "dm", "8": "dm", "-9": "group"}
NAMES = {chat: f"agent-main-fake-{kind}-{chat}" for chat, kind in CHATS.items()}
LONG = "word " * 2_400


@pytest.fixture
def arrived(request: pytest.FixtureRequest, machine: Machine, server: Served) -> Arrived:
    """A separate workspace for the test."""
    workspace = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60] + "-" + uuid.uuid4().hex[:8]
    machine.write({"baseUrl": server.url, "workspace": workspace, "peerName": "me", "aiPeer": "bot"})
    return Arrived(server, workspace)


class Agent:
    """A model that delegates on request, and answers the host's other requests."""

    def __init__(self) -> None:
        self.reviews = self.summaries = self.tasks = 0

    def __call__(self, asked: ModelRequest) -> ScriptedAnswer:
        system, last = str(asked.messages[0]["content"]), asked.messages[-1]
        if system.startswith(REVIEW):
            self.reviews += 1
            return Reply("done")
        if system.startswith(SUMMARISE):
            self.summaries += 1
            return Reply("They spoke of words.")
        if system.startswith(DELEGATE):
            self.tasks += 1
            return Reply("the sub-agent's result")
        if last["role"] == "tool":
            return Reply("reply after the task")
        said = strip_fences(str(last["content"]))
        if "delegate" in said:
            return Reply(tool_calls=(ToolCall("c1", "delegate", '{"task": "look it up"}'),))
        found = re.search(r"turn \d+", said)
        return Reply(f"reply to {found[0] if found else said}")


class Talk:
    """Records the messages of each chat, across restarts."""

    def __init__(self) -> None:
        self.said: dict[str, list[tuple[str, str]]] = {chat: [] for chat in CHATS}
        self._count = 0

    async def turn(self, core: Core, chat: str, text: str = "") -> None:
        """Run a turn; a group's people take turns."""
        self._count += 1
        said = f"turn {self._count} {text}".strip()
        author = f"{chat}{self._count % 3}" if CHATS[chat] == "group" else f"1{chat}"
        before = len(core.platform.texts(chat))
        await core.platform.deliver(message(said, chat, kind=CHATS[chat], author=author))  # type: ignore[arg-type]
        reply = "reply after the task" if "delegate" in said else f"reply to turn {self._count}"
        await core.platform.until(lambda: reply in core.platform.texts(chat)[before:])  # a notice may come first
        self.said[chat] += [(author, said), ("bot", reply)]

    async def command(self, core: Core, chat: str, text: str) -> str:
        before = len(core.platform.texts(chat))
        author = f"{chat}1" if CHATS[chat] == "group" else f"1{chat}"
        await core.platform.deliver(message(text, chat, kind=CHATS[chat], author=author))  # type: ignore[arg-type]
        await core.platform.until(lambda: len(core.platform.texts(chat)) > before)
        return core.platform.texts(chat)[-1]


async def _until(core: Core, query: str) -> None:
    """Wait until a query of the store returns rows."""
    async with asyncio.timeout(120):
        while not await core.store.read(lambda tx: tx.execute(query).fetchall()):  # noqa: ASYNC110 - it is in the store
            await asyncio.sleep(0.05)


@pytest.mark.contract("4.6", "5.11", "6.1")
async def test_three_chats_are_three_sessions_through_every_event(machine: Machine, arrived: Arrived) -> None:
    agent, talk = Agent(), Talk()
    settings: dict[str, Any] = {"memory__provider": "honcho", "memory__review_every": 1, "compression__threshold": 0.1}
    async with running_core(machine.home, agent, **settings) as core:
        for chat in CHATS:
            await talk.turn(core, chat, "hello")
            await talk.turn(core, chat, "please delegate it")
        for _ in range(4):
            await talk.turn(core, "7", LONG)
        assert (await talk.command(core, "7", "/compress")).startswith("Compressed")
        for chat in CHATS:
            await talk.command(core, chat, "/new")
            await talk.turn(core, chat, "anew")
    async with running_core(machine.home, agent, **{**settings, "compression__idle": 0.1}) as core:
        for _ in range(7):
            await talk.turn(core, "8", LONG)
        idle = "SELECT 1 FROM hermes_compressions c JOIN sessions s ON s.id = c.session_id WHERE s.chat_id = '8'"
        await _until(core, idle)
        for chat in CHATS:
            await talk.turn(core, chat, "after the restart")
        delivered = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM hermes_queue WHERE state <> 'done')"
        await _until(core, delivered)
        sessions = await core.store.read(lambda tx: tx.execute("SELECT count(*) FROM sessions").fetchone()[0])
    assert sessions == 6, "each chat began anew once"
    assert agent.tasks == 3
    assert agent.reviews
    assert agent.summaries >= 2
    assert sorted(arrived.sessions()) == sorted(NAMES.values())
    for chat, name in NAMES.items():
        assert arrived.said(name) == talk.said[chat]
    people = {peer for said in talk.said.values() for peer, _ in said}
    assert arrived.peers() == people


@pytest.mark.contract("5.8")
def test_three_people_of_a_group_are_three_peers_with_their_messages(machine: Machine, arrived: Arrived) -> None:
    with (
        BotApi() as api,
        scripted_model() as model,
        BotGateway(machine.home, api, model, {"memory.provider": "honcho"}) as gateway,
    ):
        group, people = api.group("Garden"), [api.person(name) for name in ("Ann", "Bob", "Cid")]
        for number in range(6):
            who = people[number % 3]
            api.say(group, f"@{USERNAME} I am {who.name} {number}", who)
            api.until(lambda count=number + 1: len(api.texts(group.id)) == count)  # type: ignore[misc]
        name = f"agent-main-telegram-group-{group.id}"
        wait_until(lambda: arrived.sessions() == [name] and len(arrived.said(name)) == 12, seconds=120)
        gateway.stop()
    said = [one for one in arrived.said(name) if one[0] != "bot"]
    assert said == [(str(people[n % 3].id), f"I am {people[n % 3].name} {n}") for n in range(6)]
    assert arrived.peers() == {"bot", *(str(who.id) for who in people)}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    """A server that requires keys."""
    with running(tmp_path / "guarded", AUTH_USE_AUTH="true", AUTH_JWT_SECRET=SECRET) as served:
        yield served


def make_key(**claims: object) -> str:
    return jwt.encode({"t": "2026-01-01T00:00:00Z", "ad": True, **claims}, SECRET, algorithm="HS256")


@pytest.mark.contract("6.4", "6.5", "P1")
async def test_two_hosts_with_an_expired_key_lose_no_turn_and_share_one_session(
    machine: Machine, guarded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.memory.deliveries.OUTAGE_PAUSE_SECONDS", 0.3)
    monkeypatch.setattr("hermes.memory.deliveries.MAX_OUTAGE_BACKOFF_SECONDS", 0.3)
    settings = {"baseUrl": guarded.url, "workspace": "lab", "peerName": "me", "aiPeer": "bot"}
    machine.write({**settings, "apiKey": make_key(exp="2020-01-01T00:00:00Z")})
    chat = "agent:main:telegram:dm:17"
    env = {"HOME": str(machine.folder), "LOGNAME": "ann"}
    stores, hosts = [], []
    for number in range(2):
        store = await Store.open(machine.home / "state.db", clock=SystemClock(), lock_timeout=30.0)
        provider = ActiveProvider("honcho", HonchoPlugin, store, Surroundings(machine.home, None, env))
        deliveries = Deliveries(provider, new_owner(), 4)
        deliveries.start()
        stores.append(store)
        hosts.append((provider, deliveries, Conversation(f"s{number}", "telegram", "own", Speaker("17"), "dm", chat)))

    async def burst(provider: ActiveProvider, about: Conversation) -> None:
        memory = await begin(provider, about)
        for number in range(20):
            await turn(memory, f"{about.session_id} {number}", about.session_id)

    await asyncio.gather(*(burst(provider, about) for provider, _, about in hosts))
    refused = [item.reason for item in await stores[0].read(lambda tx: items(tx, "memory:honcho", "waiting"))]
    assert len(refused) == 80, "nothing was put aside"
    async with asyncio.timeout(120):
        while not any("Check `apiKey`" in (reason or "") for reason in refused):
            await asyncio.sleep(0.1)
            refused = [item.reason for item in await stores[0].read(lambda tx: items(tx, "memory:honcho", "waiting"))]
    machine.write({**settings, "apiKey": make_key()})
    async with asyncio.timeout(120):
        while (await hosts[0][1].left()).entries:  # noqa: ASYNC110 - what is left is in the store
            await asyncio.sleep(0.1)
    for (provider, deliveries, _), store in zip(hosts, stores, strict=True):
        await deliveries.finish(1.0)
        await provider.close()
        await store.close()
    arrived = Arrived(guarded, key=make_key())
    assert arrived.sessions() == ["agent-main-telegram-dm-17"]
    said = [content for _, content in arrived.said("agent-main-telegram-dm-17")]
    assert len(said) == 80
    for number in range(2):
        own = [text for text in said if f"s{number} " in text]
        expected = [one for n in range(20) for one in (f"s{number} {n}", f"reply to s{number} {n}")]
        assert own == expected
