"""Memory of a process at a terminal: the provider, its deliveries, and the owner's entries."""

from __future__ import annotations

from hermes.app import App
from hermes.assembly import open_notes, open_provider
from hermes.memory.book import MemoryBook
from hermes.memory.deliveries import Deliveries
from hermes.memory.values import Notebook, Speaker
from hermes.scope import OWNER
from hermes.store.store import Store


class OwnMemory:
    """The owner's memory. Deliveries begin with `start_deliveries`; `finish` closes the provider."""

    def __init__(self, app: App, store: Store, owner: str, *, lanes: int, for_one_turn: bool = False) -> None:
        self.provider = open_provider(app, store, for_one_turn=for_one_turn)
        self._deliveries = None if self.provider is None else Deliveries(self.provider, owner, lanes)
        self._all_told = True
        notebook = Notebook(Speaker(is_owner=True))
        self.book = MemoryBook(store, open_notes(app, OWNER), self.provider, notebook, self.start_deliveries)
        """The owner's notes and facts."""

    def warm_up(self) -> None:
        """Let the provider prepare for the first question in the background."""
        if self.provider is not None:
            self.provider.warm_up()

    def start_deliveries(self) -> None:
        if self._deliveries is not None:
            self._deliveries.start()

    async def finish(self, seconds: float) -> bool:
        """Deliver queued entries for up to `seconds`, then close the provider. Return False if entries remain, also
        when called again after a cancelled call."""
        if self.provider is not None and self._deliveries is not None:
            told, self._all_told = self._all_told, False  # until it is known: the person may not wait for it
            self._all_told = await self._deliveries.finish(seconds) and told
            await self.provider.close()
        return self._all_told
