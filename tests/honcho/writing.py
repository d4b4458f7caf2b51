"""Delivery to a real server without a store: entries, a lane that delivers as the host does, and the server's
contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import field
from msgspec.structs import replace

from hermes.clock import Clock
from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.wire import DeliveryTimeouts
from hermes.memory.plugin_host import CommandHost
from hermes.memory.provider import Acquaintance, Conversation, Entry, Later, Notebook, Outcome, Speaker
from hermes.types import Json
from tests.compression.hand_clock import HandClock
from tests.honcho.configuring import Machine
from tests.memory_server.serving import Served

OWNER, ANN, BOB = Speaker(is_owner=True), Speaker("17", "@ann", "Ann"), Speaker("23", name="Bob")
HERE = Conversation("s1", "cli", "everything", OWNER, directory=Path("/code/app"))
GROUP = Conversation("s3", "telegram", "here", None, "group", "agent:main:telegram:group:-100")
NOTES = Notebook(OWNER)
Writer = Callable[..., HonchoPlugin]
BATCH_ENTRIES, ATTEMPT_SECONDS, PAUSE_SECONDS = 50, 45.0, 15.0


class KeepingHost(CommandHost, frozen=True):
    """A host without a store that keeps values in memory."""

    values: dict[str, Json] = field(default_factory=dict)
    entries: dict[str, Json] = field(default_factory=dict)

    async def put(self, session_id: str, key: str, data: Json, speaker: Speaker | None = None) -> str:
        self.entries.setdefault(key, data)
        return key

    async def kept(self, key: str) -> Json:
        return self.values.get(key)

    async def conversations(self) -> Sequence[Conversation]:
        return ()

    async def people(self) -> Sequence[Acquaintance]:
        return ()

    async def keep(self, key: str, value: Json) -> None:
        self.values[key] = value


class QuickPlugin(HonchoPlugin):
    """Abandons requests quickly, for servers that let some hang."""

    timeouts = DeliveryTimeouts(request=3.0)


def make_writer(
    machine: Machine,
    url: str,
    clock: Clock | None = None,
    kind: type[HonchoPlugin] = HonchoPlugin,
    **configuration: Any,
) -> HonchoPlugin:
    """Create a plugin that writes to a server, as the owner Ann in the workspace `lab`."""
    given = {"baseUrl": url, "workspace": "lab", "peerName": "ann", "aiPeer": "bot", **configuration}
    machine.write(given)
    env = {"HOME": str(machine.folder), "LOGNAME": "ann"}
    host = KeepingHost(machine.home, None, env, clock or HandClock(), list[str]().append)
    return kind(host)


class Lane:
    """Entries of one place, delivered as the host does it: in batches, with `tried_at`, and again after each Later."""

    def __init__(self, plugin: HonchoPlugin, place: Conversation | Notebook = HERE, name: str = "k") -> None:
        self.plugin = plugin
        self.clock = plugin.host.clock
        self.outcomes: dict[str, Outcome] = {}
        self.put_off: list[Later] = []
        self._place = place
        self._address = plugin.address(place)
        self._name = name
        self._waiting: list[Entry] = []
        self._count = 0

    def put(
        self, text: str, kind: Any = "said", speaker: Speaker | None = OWNER, data: Json = None, at: float | None = None
    ) -> str:
        """Queue an entry and return its key."""
        self._count += 1
        key = f"{self._name}{self._count}"
        session = self._place.session_id if isinstance(self._place, Conversation) else None
        when = self.clock.now() if at is None else at
        self._waiting.append(Entry(key, kind, self._address.data, text, when, speaker, session, data))
        return key

    async def attempt(self) -> Sequence[Outcome]:
        """Deliver one batch once."""
        batch, now = self._waiting[:BATCH_ENTRIES], self.clock.now()
        outcomes = await self.plugin.deliver(batch, now + ATTEMPT_SECONDS)
        self._waiting[: len(batch)] = [replace(entry, tried_at=now) for entry in batch]
        for outcome in outcomes:
            if isinstance(outcome, Later):
                self.put_off.append(outcome)
                break
            self.outcomes[self._waiting.pop(0).key] = outcome
        return outcomes

    async def drain(self, most: int = 10_000) -> Mapping[str, Outcome]:
        """Deliver until the queue is empty; pauses pass as fast as the clock allows."""
        while self._waiting:
            most -= 1
            assert most, [self.put_off[-1], len(self._waiting)]
            outcomes = await self.attempt()
            if outcomes and isinstance(outcomes[-1], Later):
                pause = outcomes[-1].after or PAUSE_SECONDS
                if isinstance(self.clock, HandClock):
                    self.clock.advance(pause)
                else:
                    await self.clock.sleep(pause)
        return self.outcomes


class Arrived:
    """The contents of a server, read past the fault-injecting proxy."""

    def __init__(self, served: Served, workspace: str = "lab", key: str | None = None) -> None:
        self._served = served
        self._workspace = workspace
        self._key = key

    def _ask(self, method: str, path: str, body: Json = None) -> Any:
        with self._served.client(self._key) as client:
            answer = client.request(method, f"/v3/workspaces/{self._workspace}{path}", json=body)
            answer.raise_for_status()
            return answer.json()

    def _all(self, path: str, filters: Json = None) -> list[Any]:
        found: list[Any] = []
        page = 1
        while True:
            told = self._ask("POST", f"{path}/list?size=100&page={page}", {"filters": filters or {}})
            found += told["items"]
            if page >= told["pages"]:
                return found
            page += 1

    def sessions(self) -> list[str]:
        return [session["id"] for session in self._all("/sessions")]

    def peers(self) -> set[str]:
        return {peer["id"] for peer in self._all("/peers")}

    def messages(self, session: str = "app") -> list[Any]:
        return self._all(f"/sessions/{session}/messages")

    def said(self, session: str = "app") -> list[tuple[str, str]]:
        """Return speaker and text of a session's messages, in order."""
        return [(message["peer_id"], message["content"]) for message in self.messages(session)]

    def conclusions(self) -> list[Any]:
        return self._all("/conclusions")

    def observing(self, peer: str, session: str = "app") -> tuple[bool, bool]:
        told = self._ask("GET", f"/sessions/{session}/peers/{peer}/config")
        return told["observe_me"], told["observe_others"]

    def card(self, peer: str, target: str) -> list[str] | None:
        found: list[str] | None = self._ask("GET", f"/peers/{peer}/card?target={target}")["peer_card"]
        return found
