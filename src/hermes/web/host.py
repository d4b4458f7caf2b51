"""What the pages work with: the store, the owner's memory, and the conversations of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from hermes.app import App
from hermes.db.engine import Tx
from hermes.gateway.agent_cache import AgentCache
from hermes.llm.model import Model
from hermes.memory.book import MemoryBook
from hermes.memory.command_host import make_plugin
from hermes.memory.provider import MemoryPlugin
from hermes.memory.registry import NONE
from hermes.owner.memory import OwnMemory
from hermes.owner.models import MemoryModelDesk
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
"""Hooks that are called again by themselves until they work."""
CANNOT_BE_TOLD = "it cannot be told anything"


class MemoryProbe:
    """Looks now and then, beside everything else, whether memory answers again."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[bool] | None = None
        self._looked_at = 0.0

    def answers(self, book: MemoryBook) -> bool:
        """What the last look found; False before there is one."""
        now = asyncio.get_running_loop().time()
        if self._looking is None or (self._looking.done() and now - self._looked_at > PROBE_SECONDS):
            found = self._looking is not None and self._looking.result()
            self._looked_at, self._looking = now, asyncio.create_task(book.provider_answers())
            return found
        return self._looking.done() and self._looking.result()


class WebHost(Struct, frozen=True):
    """One profile's owner at the page."""

    app: App
    store: Store
    door: WebDoor
    memory: OwnMemory
    turns: LiveTurns
    people: People
    probe: MemoryProbe
    model: Model
    agents: AgentCache
    memory_model: MemoryModelDesk

    @property
    def book(self) -> MemoryBook:
        """What memory holds of the owner."""
        return self.memory.book

    @property
    def now(self) -> float:
        return self.app.clock.now()

    async def trouble(self, session_id: str = "") -> str:
        """Why memory does not work now, in a line, also what fails in one conversation alone; "" while it works."""
        provider = self.memory.provider
        if provider is None:
            return ""
        failing = provider.health.failing(session_id)
        told = await self.store.read(lambda tx: get_health(tx, provider.name))
        if told.failing_since is not None:  # ends with a delivery, which is tried again by itself
            return told.last_error or CANNOT_BE_TOLD
        if reason := next((failing[hook] for hook in DELIVERING if hook in failing), ""):
            return reason
        # Other hooks count as failing until they are called again, which may be long after the server is back.
        return "" if not failing or self.probe.answers(self.book) else next(iter(failing.values()))

    async def read(self, look: Callable[[Store, People, Tx], T]) -> T:
        """What `look` finds in the store at one moment."""
        return await self.store.read(lambda tx: look(self.store, self.people, tx))


def find_plugin(host: WebHost) -> MemoryPlugin | None:
    """The provider as commands use it: it may block, so it is asked in a thread. None where there is none."""
    app, name = host.app, host.app.settings.get(PROVIDER)
    return None if name == NONE else make_plugin(name, app.home.plugins, quiet_host(app))
