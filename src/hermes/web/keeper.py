"""Keeps the host of the pages up to date: when the files of its settings change, it is made anew, and nothing that runs
is stopped."""

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
LANES_AT_ONCE = 2
"""Lanes of the memory outbox that this process delivers side by side."""
DELIVER_SECONDS = 5.0
"""How long memory is told the rest at the end; what is left another process tells."""


class HostKeeper:
    """`host` is the one in force. Close it when nobody is served any more."""

    def __init__(self, app: App, store: Store, door: WebDoor, memory_model: MemoryModelDesk) -> None:
        self._lock = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._mark = _mark_of(app)
        self.editing = asyncio.Lock()
        """Held by whoever compares settings with what a form saw, and changes them."""
        self.host = _open_host(app, store, door, memory_model)

    async def refresh(self) -> None:
        """Read the settings again if their files have changed. Raises HermesError for settings that cannot be used;
        then those before stay in force."""
        async with self._lock:
            before = self.host
            if (mark := await asyncio.to_thread(_mark_of, before.app)) == self._mark:
                return
            app = await asyncio.to_thread(App.load, before.app.home.profile)
            self.host = _open_host(app, before.store, before.door, before.memory_model, before.turns)
            self._mark = mark
            task = asyncio.create_task(_leave(before, self.host))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            log.info("web: the settings have changed and were read again")

    async def close(self) -> None:
        """Tell memory the rest for a short time, and close all."""
        if self._leaving:
            await asyncio.wait(self._leaving)
        await _close(self.host)


def _mark_of(app: App) -> str:
    """Return a mark of the settings' files, which changes with their contents."""
    found = sha256()
    for path in (app.home.config_file, app.home.env_file):
        try:
            found.update(read_file(path))
        except OSError:  # missing, or told by who reads the settings
            found.update(b"-")
        found.update(b"\0")
    return found.hexdigest()


def _open_host(
    app: App, store: Store, door: WebDoor, memory_model: MemoryModelDesk, turns: LiveTurns | None = None
) -> WebHost:
    owner, model = new_owner(), open_speaker(app)
    memory = OwnMemory(app, store, owner, lanes=LANES_AT_ONCE)
    agents = open_agents(app, store, model, owner, memory.provider)
    if turns is None:
        turns = LiveTurns(store, agents)
    else:
        turns.agents = agents
    memory.start_deliveries()
    memory.warm_up()
    return WebHost(app, store, door, memory, turns, open_people(app), MemoryProbe(), model, agents, memory_model)


async def _leave(before: WebHost, after: WebHost) -> None:
    """Close what only turns use that began before."""
    await after.turns.wait_for_running()
    await before.agents.close("settings")
    await _close(before)


async def _close(host: WebHost) -> None:
    await host.memory.finish(DELIVER_SECONDS)
    await host.model.close()
