"""Measures what the memory outbox adds to a turn's two commits, and the delivery of a backlog."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.table import Row, report, summarise
from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.no_memory import NoMemory
from hermes.memory.notes import Notes
from hermes.memory.provider import (
    Address,
    Conversation,
    Delivered,
    Entry,
    MemoryPlugin,
    MemorySession,
    Notebook,
    Outcome,
    Question,
    Recalled,
    Speaker,
)
from hermes.scope import OWNER
from hermes.store.store import Store
from hermes.types import Draft

MEASURED_TURN_COUNT = 300
TEXT = "I collect stamps from Malta and sometimes from Gozo. " * 4


class _Session(MemorySession):
    async def recall(self, question: Question) -> Recalled:  # noqa: ARG002 - it recalls nothing
        return Recalled()


class _Quick(MemoryPlugin):
    name = "quick"

    def is_available(self) -> bool:
        return True

    def address(self, place: Conversation | Notebook) -> Address:
        return Address(place.session_id if isinstance(place, Conversation) else "notes")

    def open(self, conversation: Conversation, address: Address) -> MemorySession:  # noqa: ARG002
        return _Session()

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:  # noqa: ARG002
        return [Delivered()] * len(entries)


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        report("Outbox: a turn's two commits, and deliveries", asyncio.run(_measure(Path(folder))))


async def _measure(home: Path) -> list[Row]:
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        provider = ActiveProvider("quick", _Quick, store, Surroundings(home))
        session = (await store.create_session("cli")).id
        conversation = Conversation(session, "cli", "everything", Speaker(is_owner=True))
        memory = Memory(provider, conversation, Notes(home, OWNER, {}))
        await memory.tools(memory.begin())
        without = summarise("two commits without a provider", await _turns(store, session, NoMemory()))
        within = summarise("two commits with the outbox", await _turns(store, session, memory), without)
        delivered = summarise("delivery of one of its entries", [await _deliver(provider)], without)
        await memory.close()
        await provider.close()
    return [without, within, delivered]


async def _turns(store: Store, session: str, memory: Memory | NoMemory) -> list[float]:
    taken: list[float] = []
    for _ in range(MEASURED_TURN_COUNT):
        start = time.perf_counter()

        def accept(tx: Tx) -> None:
            memory.said(tx, store.messages.append(tx, session, [Draft("user", TEXT)], now=store.clock.now()))

        def conclude(tx: Tx) -> None:
            [reply] = store.messages.append(tx, session, [Draft("assistant", TEXT)], now=store.clock.now())
            memory.replied(tx, reply)

        await store.write(accept)
        await store.write(conclude)
        taken.append(time.perf_counter() - start)
    return taken


async def _deliver(provider: ActiveProvider) -> float:
    """Return the seconds for one entry of the backlog."""
    deliveries = Deliveries(provider, "bench", 4)
    start = time.perf_counter()
    deliveries.start()
    await deliveries.finish(120.0)
    return (time.perf_counter() - start) / (2 * MEASURED_TURN_COUNT)
