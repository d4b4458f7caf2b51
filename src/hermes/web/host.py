"""The services behind the pages: the store, the owner's memory, and the conversations of this process.

Keeps the host of the pages current: a change of the settings' files replaces it without stopping running turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from msgspec import Struct

from hermes.app import App
from hermes.assembly import open_people, open_speaker
from hermes.db.engine import Tx
from hermes.db.leases import new_owner
from hermes.files import read_file
from hermes.gateway.agent_cache import AgentCache
from hermes.hosting import open_agents
from hermes.llm.model import Model
from hermes.memory.book import MemoryBook
from hermes.memory.plugin_host import make_plugin
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.owner.memory import OwnMemory
from hermes.owner.models import MemoryModelConsole
from hermes.owner.status import quiet_host
from hermes.settings import PROVIDER
from hermes.store.memory_rows import get_health
from hermes.store.people import People
from hermes.store.store import Store
from hermes.web.door import WebDoor
from hermes.web.turns import LiveTurns

T = TypeVar("T")
PROBE_SECONDS = 3.0
DELIVERING = ("delivery", "deliver")
"""Hooks that are retried automatically."""
DELIVERIES_FAIL = "deliveries to it fail"


class MemoryProbe:
    """Checks from time to time, in the background, whether memory responds again."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[bool] | None = None
        self._looked_at = 0.0

    def answers(self, book: MemoryBook) -> bool:
        """Return the result of the last check; False before the first one."""
        now = asyncio.get_running_loop().time()
        if self._looking is None or (self._looking.done() and now - self._looked_at > PROBE_SECONDS):
            found = self._looking is not None and self._looking.result()
            self._looked_at, self._looking = now, asyncio.create_task(book.provider_answers())
            return found
        return self._looking.done() and self._looking.result()


class WebHost(Struct, frozen=True):
    """The services of one profile's owner."""

    app: App
    store: Store
    door: WebDoor
    memory: OwnMemory
    turns: LiveTurns
    people: People
    probe: MemoryProbe
    model: Model
    agents: AgentCache
    memory_model: MemoryModelConsole

    @property
    def book(self) -> MemoryBook:
        """The memory of the owner."""
        return self.memory.book

    @property
    def now(self) -> float:
        return self.app.clock.now()

    async def trouble(self, session_id: str = "") -> str:
        """Return why memory does not work, in a line, also for a failure in one conversation only; "" if it works."""
        provider = self.memory.provider
        if provider is None:
            return ""
        failing = provider.health.failing(session_id)
        told = await self.store.read(lambda tx: get_health(tx, provider.name))
        if told.failing_since is not None:  # ends with a delivery, which is retried automatically
            return told.last_error or DELIVERIES_FAIL
        if reason := next((failing[hook] for hook in DELIVERING if hook in failing), ""):
            return reason
        # Other hooks count as failing until they are called again, which may be long after the server is back.
        return "" if not failing or self.probe.answers(self.book) else next(iter(failing.values()))

    async def read(self, look: Callable[[Store, People, Tx], T]) -> T:
        """Return the result of `look` in one read transaction."""
        return await self.store.read(lambda tx: look(self.store, self.people, tx))


def find_plugin(host: WebHost) -> MemoryPlugin | None:
    """Return the provider's plugin for commands; None without a provider. The plugin may block: call it in a thread."""
    app, name = host.app, host.app.settings.get(PROVIDER)
    return None if name == NONE else make_plugin(name, app.home.plugins, quiet_host(app))


log = logging.getLogger("hermes.web")
MAX_DELIVERY_LANES = 2
"""Maximum number of lanes of the memory outbox that this process delivers in parallel."""
FINAL_DELIVERY_SECONDS = 5.0
"""Time for deliveries to memory at shutdown. Another process delivers the rest."""


class HostKeeper:
    """Holds the host in force. Close it after the last request."""

    def __init__(self, app: App, store: Store, door: WebDoor, memory_model: MemoryModelConsole) -> None:
        self._lock = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._mark = _mark_of(app)
        self.editing = asyncio.Lock()
        """Held while settings are compared with what a form saw, and changed."""
        self.host = _open_host(app, store, door, memory_model)

    async def refresh(self) -> None:
        """Reload the settings if their files have changed. Raises HermesError for invalid settings; the previous ones
        stay in force."""
        async with self._lock:
            before = self.host
            if (mark := await asyncio.to_thread(_mark_of, before.app)) == self._mark:
                return
            app = await asyncio.to_thread(App.load, before.app.home.profile)
            self.host = _open_host(app, before.store, before.door, before.memory_model, before.turns)
            self._mark = mark
            task = asyncio.create_task(_close_replaced(before, self.host))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            log.info("web: the settings have changed and were read again")

    async def close(self) -> None:
        """Deliver to memory for a short time, and close all."""
        if self._leaving:
            await asyncio.wait(self._leaving)
        await _close(self.host)


def _mark_of(app: App) -> str:
    """Return a hash of the settings' files."""
    found = sha256()
    for path in (app.home.config_file, app.home.env_file):
        try:
            found.update(read_file(path))
        except OSError:  # missing, or reported when the settings are read
            found.update(b"-")
        found.update(b"\0")
    return found.hexdigest()


def _open_host(
    app: App, store: Store, door: WebDoor, memory_model: MemoryModelConsole, turns: LiveTurns | None = None
) -> WebHost:
    owner, model = new_owner(), open_speaker(app)
    memory = OwnMemory(app, store, owner, lanes=MAX_DELIVERY_LANES)
    agents = open_agents(app, store, model, owner, memory.provider)
    if turns is None:
        turns = LiveTurns(store, agents)
    else:
        turns.agents = agents
    memory.start_deliveries()
    memory.warm_up()
    return WebHost(app, store, door, memory, turns, open_people(app), MemoryProbe(), model, agents, memory_model)


async def _close_replaced(before: WebHost, after: WebHost) -> None:
    """Close the previous host after its running turns."""
    await after.turns.wait_for_running()
    await before.agents.close("settings")
    await _close(before)


async def _close(host: WebHost) -> None:
    await host.memory.finish(FINAL_DELIVERY_SECONDS)
    await host.model.close()
