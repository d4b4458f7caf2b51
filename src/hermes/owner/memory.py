"""Memory as a process at a terminal has it: the provider, what that is still to be told, and the owner's book."""

from __future__ import annotations

from hermes.app import App
from hermes.assembly import open_notes, open_provider
from hermes.memory.book import MemoryBook
from hermes.memory.deliveries import Deliveries
from hermes.memory.values import Notebook, Speaker
from hermes.scope import OWNER
from hermes.store.store import Store


class OwnMemory:
    """Nothing is delivered before `start_deliveries`; `finish` closes the provider."""

    def __init__(self, app: App, store: Store, owner: str, *, lanes: int, for_one_turn: bool = False) -> None:
        self.provider = open_provider(app, store, for_one_turn=for_one_turn)
        self._deliveries = None if self.provider is None else Deliveries(self.provider, owner, lanes)
        self._all_told = True
        notebook = Notebook(Speaker(is_owner=True))
        self.book = MemoryBook(store, open_notes(app, OWNER), self.provider, notebook, self.start_deliveries)
        """What memory holds of the owner."""

    def warm_up(self) -> None:
        """Have the provider get ready for the first question. Nobody waits for it."""
        if self.provider is not None:
            self.provider.warm_up()

    def start_deliveries(self) -> None:
        if self._deliveries is not None:
            self._deliveries.start()

    async def finish(self, seconds: float) -> bool:
        """Deliver what the provider has not been told, for so long, and close it. False when something is left. Called
        again after it was cut short it says so too."""
        if self.provider is not None and self._deliveries is not None:
            told, self._all_told = self._all_told, False  # until it is known: the person may not wait for it
            self._all_told = await self._deliveries.finish(seconds) and told
            await self.provider.close()
        return self._all_told
