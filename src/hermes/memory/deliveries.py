"""Deliveries: what the rows of the memory outbox mean to its worker. Every process that talks with people has one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.outcomes import Defect, Done, ItemOutcome, Postponed, Retry
from hermes.db.queue import Claim, Item
from hermes.db.queue_items import drop, prune, stats
from hermes.db.worker import QueueWorker, Work, WorkerTerms
from hermes.memory.active import ActiveProvider
from hermes.memory.delivery import (
    BATCH,
    GONE,
    LEASE,
    LONGEST_REASON,
    asked_pause,
    outcomes_flaw,
    pause_of,
    read_entry,
    settle_batch,
)
from hermes.memory.forgetting import mark_forgotten
from hermes.memory.outbox import is_waiting_lane
from hermes.memory.plugin_thread import Missed
from hermes.memory.values import Delivered, Entry, EntryKind, Later, Parked
from hermes.store.memory_rows import record_delivery

ADDRESS_EVERY = 60.0
"""Seconds between two looks at entries that have no address yet."""
KEPT_DONE = 7 * 86_400.0
"""Seconds that what was delivered is kept: the key of an entry has no second effect for so long."""
NOT_NOW = 5.0
"""Seconds until a lane is tried again whose delivery could not be begun."""
PAUSE = 15.0
"""Seconds for which no lane is tried when a provider says that its server is down, unless it says for how long."""
WISHES: frozenset[EntryKind] = frozenset({"forget", "undo"})
"""Entries that ask a provider to delete something."""
OUTAGE = 3
"""Deliveries in a row that are put off before it is said."""


class Left(Struct, frozen=True):
    """Lanes with something to deliver, and how many entries that is."""

    lanes: int
    entries: int


class Deliveries(Work):
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
            provider.store.clock,
            provider.outbox.queue,
            self,
            owner=owner,
            terms=WorkerTerms(ttl=LEASE, batch=BATCH, at_once=at_once, keeps_lost=True),
            chance=chance,
            wake=provider.wake,
        )

    def start(self) -> None:
        """Begin to deliver. Beginning twice is fine."""
        if not self._running:
            self.provider.deliver_lane = self._worker.run_lane
            self._running = [
                asyncio.create_task(self._worker.run(), name="memory-deliveries"),
                asyncio.create_task(self._look_after(), name="memory-outbox"),
            ]

    async def finish(self, seconds: float) -> bool:
        """Deliver what is due, for so long, then stop. False when something is left, due or not."""
        if not self._running:
            return True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await self.provider.background.settle(seconds)
        self.provider.deliver_lane = None
        for task in self._running:
            task.cancel()
        await asyncio.wait(self._running)
        self._running = []
        await self._worker.finish(until - loop.time())
        await self._worker.drain(max(0.1, until - loop.time()))
        return not (await self.left()).entries

    async def left(self) -> Left:
        name, now = self.provider.outbox.queue, self._store.clock.now()
        found = await self._store.read(lambda tx: stats(tx, name, now=now))
        return Left(found.lanes, found.waiting)

    async def handle(self, claimed: Claim) -> Sequence[ItemOutcome]:
        """Deliver one batch of a lane."""
        now = self._store.clock.now()
        if is_waiting_lane(claimed.lane):
            return [Postponed(now + ADDRESS_EVERY, "the provider has not said yet where this goes")]
        batch = await self._store.read(lambda tx: [(item, read_entry(self._store, tx, item)) for item in claimed.items])
        entries = [entry for _, entry in batch if entry is not None]
        if not entries:
            return settle_batch(batch, [], now=now, chance=self._chance)
        until = asyncio.get_running_loop().time() + self.provider.deadlines.deliver
        wall, line = self.provider.wall(until), f"deliver:{claimed.lane}"
        found = await self.provider.call(
            "deliver", lambda plugin: plugin.deliver(entries, wall), (list, tuple), until, line=line, flaw=outcomes_flaw
        )
        now = self._store.clock.now()
        if isinstance(found, Missed):
            return self._missed(claimed.items, found, now)
        if wrong := outcomes_flaw(found.value):
            return self._missed(claimed.items, Missed(f"deliver returned {wrong}", defect=True), now)
        self._note_outage(entries, found.value)
        return settle_batch(batch, found.value, now=now, chance=self._chance)

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        """Record with the outcomes how deliveries go. What was given back, or had nothing to send, tells nothing."""
        if is_waiting_lane(claimed.lane) or not recorded:
            return
        last, now = recorded[-1], self._store.clock.now()
        over = [item for item, outcome in zip(claimed.items, recorded, strict=False) if isinstance(outcome, Done)]
        drop(tx, [item.id for item in over if _is_forgetting(item)])
        if any(item.payload and item.payload["kind"] == "undo" for item in claimed.items[: len(recorded)]):
            mark_forgotten(tx, self.provider.name, now=now)  # what was fetched until now may still hold it
        if isinstance(last, Done) and last.note != GONE:
            record_delivery(tx, self.provider.name, None, now=now)
        elif not isinstance(last, Done) and last.reason is not None:
            record_delivery(tx, self.provider.name, last.reason, now=now)

    def settled(self, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:  # noqa: ARG002 - the shape
        """Ask where entries go that have no address yet: now that their lane is free they can follow it."""
        if is_waiting_lane(claimed.lane):
            self.provider.address_soon()

    async def _look_after(self) -> None:
        """Every now and then address what has no address yet, and forget what was delivered long ago."""
        while True:
            self.provider.address_soon()
            self.provider.background.begin(self._prune(), "forgetting what was delivered")
            await self._store.clock.sleep(ADDRESS_EVERY)

    async def _prune(self) -> None:
        name, before = self.provider.outbox.queue, self._store.clock.now() - KEPT_DONE
        await self._store.write(lambda tx: prune(tx, name, before=before))

    def _missed(self, items: Sequence[Item], missed: Missed, now: float) -> Sequence[ItemOutcome]:
        """The plugin was not asked, raised, or was too late: then what it had begun may have arrived."""
        if missed.skipped:
            return [Postponed(now + NOT_NOW, missed.reason)]
        at = now + pause_of(items[0], self._chance)
        return [Defect(at, missed.reason) if missed.defect else Retry(at, missed.reason) for _ in items]

    def _note_outage(self, entries: Sequence[Entry], outcomes: Sequence[Delivered | Later | Parked]) -> None:
        """Say it when deliveries are put off again and again or refused, and when they work: the last outcome counts.
        A wish to delete that cannot be met is no outage. Let a server that is down alone."""
        later = next((outcome for outcome in outcomes if isinstance(outcome, Later)), None)
        if later is None:
            self._put_off = 0
            match outcomes[-1:]:
                case [Delivered()]:
                    self.provider.health.worked("delivery")
                case [Parked()] if entries[len(outcomes) - 1].kind in WISHES:
                    self.provider.health.worked("delivery")
                case [Parked(reason)]:
                    self.provider.health.missed("delivery", f"delivery is refused: {reason[:LONGEST_REASON]}")
            return
        self._put_off += 1
        if self._put_off >= OUTAGE:
            self.provider.health.missed("delivery", f"delivery is put off: {later.reason}")
        if later.everyone:
            self._worker.pause(self._store.clock.now() + (PAUSE if later.after is None else asked_pause(later.after)))


def _is_forgetting(item: Item) -> bool:
    """Whether an entry holds only what a person had forgotten: once it is delivered, its words go too."""
    told = item.payload
    return bool(told) and told["kind"] in ("correct", "note") and not told["text"]
