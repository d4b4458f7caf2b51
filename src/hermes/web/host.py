"""What the pages work with: the store, the owner's memory, and the conversations of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from hermes.app import App
from hermes.assembly import open_people
from hermes.db.engine import Tx
from hermes.memory.book import MemoryBook
from hermes.owner.memory import OwnMemory
from hermes.store.memory_rows import get_health
from hermes.store.people import People
from hermes.store.store import Store
from hermes.web.door import WebDoor
from hermes.web.turns import LiveTurns

T = TypeVar("T")
CANNOT_BE_TOLD = "it cannot be told anything"


class WebHost(Struct, frozen=True):
    """One profile's owner at the page."""

    app: App
    store: Store
    door: WebDoor
    memory: OwnMemory
    turns: LiveTurns
    people: People

    @classmethod
    def of(cls, app: App, store: Store, door: WebDoor, memory: OwnMemory, turns: LiveTurns) -> WebHost:
        return cls(app, store, door, memory, turns, open_people(app))

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
        if failing := provider.health.failing(session_id):
            return next(iter(failing.values()))
        told = await self.store.read(lambda tx: get_health(tx, provider.name))
        return "" if told.failing_since is None else told.last_error or CANNOT_BE_TOLD

    async def read(self, look: Callable[[Store, People, Tx], T]) -> T:
        """What `look` finds in the store at one moment."""
        return await self.store.read(lambda tx: look(self.store, self.people, tx))
