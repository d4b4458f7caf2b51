"""A home whose memory is Honcho on a real server of our kind, and conversations as the host runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hermes.clock import SystemClock
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.active import ActiveProvider, Deadlines, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.notes import Notes
from hermes.memory.plugin_thread import Returned
from hermes.memory.provider import Conversation, Speaker
from hermes.scope import Owner
from hermes.store.store import Store
from hermes.types import Draft, Message
from tests.honcho.between import Between
from tests.honcho.configuring import Machine
from tests.memory_server.serving import Served, inside
from tests.memory_server.talking import settle

PATIENT = Deadlines(first_turn=20, turn=20, tool=20, compress=20, close=20, prepare=60, delivered=20, deliver=20)
OWNER = Speaker(is_owner=True)
GUEST = Speaker("17", "@bob", "Bob")
HERE = Conversation("s1", "cli", "everything", OWNER, directory=Path("/code/app"))
DIRECT = Conversation("s2", "telegram", "own", GUEST, "dm", "agent:main:telegram:dm:17")
GROUP = Conversation("s3", "telegram", "here", None, "group", "agent:main:telegram:group:-100")
SESSIONS = {"s1": "app", "s2": "agent-main-telegram-dm-17", "s3": "agent-main-telegram-group--100"}
ANN, BOB, BOT = "ann", "17", "bot"


@dataclass
class Recalling:
    """One workspace. `ann` is the owner's peer, `17` a guest's, `bot` the agent's."""

    machine: Machine
    server: Served
    between: Between
    workspace: str
    settings: dict[str, Any] = field(default_factory=dict)

    def configure(self, **settings: Any) -> None:
        """Write the configuration."""
        self.settings = settings
        given = {"baseUrl": self.between.url, "workspace": self.workspace, "peerName": ANN, "aiPeer": BOT, **settings}
        self.machine.write(given)

    @contextmanager
    def at_server(self) -> Iterator[httpx.Client]:
        """Yield a plain client in the workspace that bypasses the proxy."""
        with inside(self.server, self.workspace) as http:
            yield http

    def tell(self, session: str, *said: tuple[str, str], observers: Sequence[str] = (BOT,)) -> None:
        """Store messages of people in a session, and wait until the server has learned from them."""
        with self.at_server() as http:
            peers = {peer: {"observe_others": peer in observers} for peer in {*(one for one, _ in said), *observers}}
            _ok(http.post("/sessions", json={"id": session, "peers": peers}))
            messages = [{"peer_id": peer, "content": text} for peer, text in said]
            _ok(http.post(f"/sessions/{session}/messages", json={"messages": messages}))
            settle(http)

    def conclude(self, observer: str, observed: str, text: str, session: str | None = None) -> str:
        """Create a conclusion and return its id."""
        with self.at_server() as http:
            for peer in (observer, observed):
                _ok(http.post("/peers", json={"id": peer}))
            body = {"content": text, "observer_id": observer, "observed_id": observed, "session_id": session}
            made = http.post("/conclusions", json={"conclusions": [body]})
            _ok(made)
            return str(made.json()[0]["id"])

    def set_card(self, observer: str, lines: Sequence[str], target: str | None = None) -> None:
        with self.at_server() as http:
            query = {} if target is None else {"target": target}
            _ok(http.put(f"/peers/{observer}/card", params=query, json={"peer_card": list(lines)}))

    @asynccontextmanager
    async def host(self, deadlines: Deadlines = PATIENT, env: Mapping[str, str] | None = None) -> AsyncIterator[Talk]:
        """Yield the host with Honcho as its provider, without deliveries."""
        env = {"HOME": str(self.machine.folder), "LOGNAME": ANN, **(env or {})}
        async with hosting(self.machine.home, env, deadlines) as talk:
            yield talk


@asynccontextmanager
async def hosting(home: Path, env: Mapping[str, str], deadlines: Deadlines = PATIENT) -> AsyncIterator[Talk]:
    """Yield a host whose home selects Honcho, without deliveries."""
    home.mkdir(parents=True, exist_ok=True)
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        provider = ActiveProvider("honcho", HonchoPlugin, store, Surroundings(home, None, env), deadlines)
        talk = Talk(provider)
        try:
            yield talk
        finally:
            await talk.close()
            await provider.close()


def _ok(answer: httpx.Response) -> None:
    assert answer.is_success, answer.text


class Talk:
    """Conversations of one host."""

    def __init__(self, provider: ActiveProvider) -> None:
        self.provider = provider
        self._memories: dict[str, Memory] = {}

    async def memory(self, conversation: Conversation = HERE) -> Memory:
        """Return a conversation's memory."""
        store, name = self.provider.store, conversation.session_id
        if name not in self._memories:
            if not await store.read(lambda tx: store.sessions.exists(tx, name)):
                await store.create_session(conversation.platform, session_id=name)
            notes = Notes(store.db.path.parent, Owner(), {"memory": 2200, "user": 1400})
            self._memories[name] = Memory(self.provider, conversation, notes)
        return self._memories[name]

    async def say(self, text: str, conversation: Conversation = HERE, speaker: Speaker = OWNER) -> Message:
        memory, store = await self.memory(conversation), self.provider.store
        draft = Draft(
            "user",
            text,
            author_id=speaker.user_id,
            author_alt=speaker.user_id_alt,
            author_name=speaker.name,
            author_is_owner=speaker.is_owner,
        )

        def accept(tx: Any) -> Message:
            [message] = store.messages.append(tx, conversation.session_id, [draft], now=store.clock.now())
            memory.said(tx, [message])
            return message

        return await store.write(accept)

    async def turn(self, text: str, conversation: Conversation = HERE, speaker: Speaker = OWNER) -> str:
        """Run a whole turn, including preparation of the next, and return what was recalled for it."""
        memory = await self.memory(conversation)
        said = await self.say(text, conversation, speaker)
        until = memory.begin()
        await memory.prompt_block(until)
        await memory.tools(until)
        recalled = await memory.recall([said], until)
        await memory.turn_over()
        memory.after_turn([said])
        await memory.settle()
        return recalled.text

    async def use(
        self, tool: str, conversation: Conversation = HERE, speaker: Speaker = OWNER, **arguments: Any
    ) -> str:
        """Return a tool's result for the model; a failure starts with `failed:`."""
        memory = await self.memory(conversation)
        await self.say("use a tool", conversation, speaker)
        found = await memory.call_tool(tool, arguments, f"key-{tool}-{arguments}")
        return found.value if isinstance(found, Returned) else f"failed: {found.reason}"

    async def close(self) -> None:
        for memory in self._memories.values():
            await memory.close()
