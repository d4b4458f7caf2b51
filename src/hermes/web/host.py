"""The services behind the pages: the store, the owner's memory, and the conversations of this process."""

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
    memory_model: MemoryModelDesk

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
