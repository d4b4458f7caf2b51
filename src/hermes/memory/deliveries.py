"""Deliveries: the worker of the memory outbox. Every process that talks with people runs one while it lasts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.db.outcomes import Defect, Outcome, Postponed, Retry
from hermes.db.queue import Claim
from hermes.db.worker import QueueWorker, WorkerTerms
from hermes.memory.active import ActiveProvider
from hermes.memory.delivery import BATCH, LEASE, Batch, pause_of, read_batch, settle_batch
from hermes.memory.outbox import is_waiting_lane
from hermes.memory.plugin_thread import Missed
from hermes.memory.values import Delivered, Later, Parked

ADDRESS_EVERY = 60.0
"""Seconds between two looks at entries that have no address yet."""
NOT_NOW = 5.0
"""Seconds until a lane is tried again whose delivery could not be begun."""
PAUSE = 15.0
"""Seconds for which no lane is tried when a provider says that its server is down, unless it says for how long."""
OUTAGE = 3
"""Deliveries in a row that are put off before it is said."""
POLL = 0.05


class Deliveries:
    """Delivers what is due of one provider's outbox, several lanes at a time."""

    def __init__(
        self, provider: ActiveProvider, owner: str, at_once: int, chance: Callable[[], float] = random.random
    ) -> None:
        self.provider = provider
        self._store = provider.store
        self._chance = chance
        self._put_off = 0
        self._running: list[asyncio.Task[None]] = []
        self._worker = QueueWorker(
            provider.store,
            provider.outbox.queue,
            owner,
            self._deliver,
            provider.wake,
            WorkerTerms(at_once=at_once, ttl=LEASE, limit=BATCH),
        )

    def start(self) -> None:
        """Begin to deliver. Beginning twice is fine."""
        if not self._running:
            self.provider.delivers = True
            self._running = [
                asyncio.create_task(self._worker.run(), name="memory-deliveries"),
                asyncio.create_task(self._address(), name="memory-addresses"),
            ]

    async def finish(self, seconds: float) -> bool:
        """Deliver what is due, for so long, then stop. False when something is left, due or not."""
        if not self._running:
            return True
        await self.provider.settle()
        until = asyncio.get_running_loop().time() + seconds
        self.provider.wake.set()
        while (await self.left()).due and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(POLL)  # noqa: ASYNC110 - another process may be the one that delivers
        self.provider.delivers = False
        for task in self._running:
            task.cancel()
        await asyncio.wait(self._running)
        self._running = []
        await self._worker.drain(max(0.1, until - asyncio.get_running_loop().time()))
        return not (await self.left()).waiting

    async def left(self) -> Left:
        """What is left to deliver."""
        name, now = self.provider.outbox.queue, self._store.clock.now()

        def count(tx: Tx) -> Left:
            row = tx.execute(
                "SELECT count(*), coalesce(sum(due_at <= ?2), 0) FROM hermes_lanes "
                "WHERE queue = ?1 AND due_at IS NOT NULL",
                (name, now),
            ).fetchone()
            return Left(int(row[0]), int(row[1]) + len(self._worker.tasks))

        return await self._store.read(count)

    async def _address(self) -> None:
        """Every now and then: entries that were recorded while the plugin could not say where they go."""
        while True:
            await self.provider.address_waiting()
            await self._store.clock.sleep(ADDRESS_EVERY)

    async def _deliver(self, claimed: Claim) -> Sequence[Outcome]:
        """Deliver one batch of a lane, and say what became of it."""
        now = self._store.clock.now()
        if is_waiting_lane(claimed.lane):
            self.provider.address_soon()
            return [Postponed(now + ADDRESS_EVERY, "the provider has not said yet where this goes")]
        batch = await self._store.read(lambda tx: read_batch(self._store, tx, self.provider.name, claimed))
        if not batch.to_deliver:
            return settle_batch(batch, [], now=now, chance=self._chance)
        until = asyncio.get_running_loop().time() + self.provider.deadlines.deliver
        wall, entries = self.provider.wall(until), batch.to_deliver
        line = f"deliver:{claimed.lane}"
        found = await self.provider.call(
            "deliver", lambda plugin: plugin.deliver(entries, wall), (list, tuple), until, line=line, flaw=_wrong
        )
        now = self._store.clock.now()
        if isinstance(found, Missed):
            return self._missed(batch, found, now)
        if wrong := _wrong(found.value):
            return self._missed(batch, Missed(f"deliver returned {wrong}", defect=True), now)
        self._note_outage(found.value)
        return settle_batch(batch, found.value, now=now, chance=self._chance)

    def _missed(self, batch: Batch, missed: Missed, now: float) -> Sequence[Outcome]:
        """The plugin was not asked, raised, or was too late: then what it had begun may have arrived."""
        if missed.skipped:
            return [Postponed(now + NOT_NOW, missed.reason)]
        at = now + pause_of(batch.items[0], self._chance)
        return [Defect(at, missed.reason) if missed.defect else Retry(at, missed.reason) for _ in batch.items]

    def _note_outage(self, outcomes: Sequence[Delivered | Later | Parked]) -> None:
        """Say it when deliveries are put off again and again, and when they work; let a server that is down alone."""
        later = next((outcome for outcome in outcomes if isinstance(outcome, Later)), None)
        if later is None:
            self._put_off = 0
            self.provider.health.worked("delivery")
            return
        self._put_off += 1
        if self._put_off >= OUTAGE:
            self.provider.health.missed("delivery", f"delivery is put off: {later.reason}")
        if later.everyone:
            self._worker.pause(PAUSE if later.after is None else later.after)


@dataclass(frozen=True, slots=True)
class Left:
    """Lanes with something to deliver, and those of them whose time has come or that are being delivered."""

    waiting: int
    due: int


def _wrong(outcomes: Sequence[object]) -> str:
    kinds = {type(outcome).__name__ for outcome in outcomes if not isinstance(outcome, Delivered | Later | Parked)}
    return f"{', '.join(sorted(kinds))}, which is no outcome" if kinds else ""
