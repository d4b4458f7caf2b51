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
from hermes.store.people import People
from hermes.store.store import Store
from hermes.web.door import WebDoor
from hermes.web.turns import LiveTurns

T = TypeVar("T")


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

    @property
    def trouble(self) -> str:
        """Why memory does not work now, in a line; "" while it does."""
        return self.trouble_in("")

    def trouble_in(self, session_id: str) -> str:
        """The same, with what fails in one conversation alone."""
        provider = self.memory.provider
        return "" if provider is None else next(iter(provider.health.failing(session_id).values()), "")

    async def read(self, look: Callable[[Store, People, Tx], T]) -> T:
        """What `look` finds in the store at one moment."""
        return await self.store.read(lambda tx: look(self.store, self.people, tx))
