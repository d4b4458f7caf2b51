"""Keeps the host of the pages current: a change of the settings' files replaces it without stopping running turns."""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256

from hermes.app import App
from hermes.assembly import open_people, open_speaker
from hermes.db.leases import new_owner
from hermes.files import read_file
from hermes.hosting import open_agents
from hermes.owner.memory import OwnMemory
from hermes.owner.models import MemoryModelDesk
from hermes.store.store import Store
from hermes.web.door import WebDoor
from hermes.web.host import MemoryProbe, WebHost
from hermes.web.turns import LiveTurns

log = logging.getLogger("hermes.web")
MAX_DELIVERY_LANES = 2
"""Maximum number of lanes of the memory outbox that this process delivers in parallel."""
FINAL_DELIVERY_SECONDS = 5.0
"""Time for deliveries to memory at shutdown. Another process delivers the rest."""


class HostKeeper:
    """Holds the host in force. Close it after the last request."""

    def __init__(self, app: App, store: Store, door: WebDoor, memory_model: MemoryModelDesk) -> None:
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
    app: App, store: Store, door: WebDoor, memory_model: MemoryModelDesk, turns: LiveTurns | None = None
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
