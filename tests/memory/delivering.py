"""Views of the outbox, and a provider that refuses entries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from hermes.db.engine import Tx
from hermes.db.queue_items import items
from hermes.memory.active import ActiveProvider
from hermes.memory.provider import Entry, Outcome
from tests.memory.providers import Recorder

QUEUE = "memory:troubled"


def waiting(tx: Tx) -> list[str]:
    """Return the keys of waiting rows, in order."""
    return [item.key.partition(":")[0] for item in items(tx, QUEUE, "waiting")]


async def left(provider: ActiveProvider) -> list[str]:
    """Return the keys of a provider's waiting rows, in order."""
    return await provider.store.read(waiting)


async def until(true: Callable[[], Awaitable[bool]], provider: ActiveProvider) -> None:
    """Wait until a condition holds, waking deliveries meanwhile."""
    async with asyncio.timeout(100):
        while not await true():
            provider.wake.set()
            await asyncio.sleep(0.01)


async def until_empty(provider: ActiveProvider) -> None:
    """Wait until no row waits."""

    async def empty() -> bool:
        return not await left(provider)

    await until(empty, provider)


class Refusing(Recorder):
    """A provider that returns given outcomes, one batch after another, and then delivers."""

    def __init__(self, *batches: Sequence[Outcome]) -> None:
        super().__init__()
        self._batches = list(batches)

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        if self._batches:
            self.calls.append(("refused", *(entry.text for entry in entries)))
            return self._batches.pop(0)
        return await super().deliver(entries, until)
