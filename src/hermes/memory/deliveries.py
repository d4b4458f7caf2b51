"""Deliveries: outbox rows become entries, the plugin delivers them, and their outcomes are recorded. Every process
that talks with people runs a worker for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from operator import methodcaller

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.queue import Claim, Dead, Defect, Done, Item, ItemOutcome, Postponed, Retry, backoff
from hermes.db.queue_items import Isolation, drop, prune, stats
from hermes.db.worker import QueueWorker, Work, WorkerOptions
from hermes.fence import strip_fences
from hermes.memory.active import PAUSE_SECONDS, ActiveProvider
from hermes.memory.forgetting import describe_undo, mark_forgotten
from hermes.memory.outbox import is_waiting_lane
from hermes.memory.plugin_thread import Hook, Missed
from hermes.memory.values import DeadLetter, Delivered, Entry, EntryKind, Later, Outcome, Speaker
from hermes.store.memory_rows import record_delivery
from hermes.store.store import Store

LEASE_SECONDS = 60.0
"""The lease of a lane, for one batch."""
MAX_BATCH_ENTRIES = 50
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_OUTAGE_BACKOFF_SECONDS = 1.0, 300.0, 60.0
"""The first and the longest back-off. While the whole provider is down the limit is lower, so that a new key or a
repaired server is noticed soon."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 86_400.0
"""Limits of a pause that a plugin asks for."""
MAX_REASON_CHARS = 1000
"""Limits stored notes and reasons."""
NOTHING_TO_SEND = "gone"
ADDRESS_INTERVAL_SECONDS = 60.0
"""How often entries without an address are tried again."""
DONE_RETENTION_SECONDS = 7 * 86_400.0
"""How long delivered rows are kept. During that time, an entry with the same key has no effect."""
SKIPPED_RETRY_SECONDS = 5.0
"""When a lane is tried again whose delivery could not start."""
OUTAGE_PAUSE_SECONDS = 15.0
"""How long all lanes pause when a provider reports that its server is down, unless it names a time."""
DELETIONS: frozenset[EntryKind] = frozenset({"forget", "undo"})
"""Kinds of entries that ask a provider to delete something."""
OUTAGE_THRESHOLD = 3
"""An outage is reported after this many postponed deliveries in a row."""


class Left(Struct, frozen=True):
    """The number of lanes with undelivered entries, and of these entries."""

    lanes: int
    entries: int


class Deliveries(Work):
    """Delivers the due outbox rows of one provider, several lanes at a time."""

    def __init__(
        self, provider: ActiveProvider, owner: str, at_once: int, chance: Callable[[], float] = random.random
    ) -> None:
        self.provider = provider
        self._store = provider.store
        self._chance = chance
        self._put_off = 0
        self._running: list[asyncio.Task[None]] = []
        self.isolation = Isolation()
        self._worker = QueueWorker(
            provider.store,
            provider.store.clock,
            provider.outbox.queue,
            self,
            owner=owner,
            options=WorkerOptions(ttl=LEASE_SECONDS, batch=MAX_BATCH_ENTRIES, at_once=at_once, keeps_lost=True),
            chance=chance,
            wake=provider.wake,
            isolation=self.isolation,
        )

    def start(self) -> None:
        """Start delivering. A second call does nothing."""
        if not self._running:
            self.provider.deliver_lane = self._worker.run_lane
            self._running = [
                asyncio.create_task(self._worker.run(), name="memory-deliveries"),
                asyncio.create_task(self._look_after(), name="memory-outbox"),
            ]

    async def finish(self, seconds: float) -> bool:
        """Deliver due entries for up to `seconds`, then stop. Return False if entries are left, due or not."""
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
            return [Postponed(now + ADDRESS_INTERVAL_SECONDS, "the provider has not given an address yet")]
        batch = await self._store.read(lambda tx: [(item, read_entry(self._store, tx, item)) for item in claimed.items])
        entries = [entry for _, entry in batch if entry is not None]
        if not entries:
            return self._settle(batch, [], now)
        deadline = self.provider.within(self.provider.deadlines.deliver)
        deliver: Hook[Sequence[Outcome]] = methodcaller("deliver", entries, deadline.wall_time)
        found = await self.provider.call(
            "deliver", deliver, (list, tuple), deadline, line=f"deliver:{claimed.lane}", flaw=outcomes_flaw
        )
        now = self._store.clock.now()
        if isinstance(found, Missed):
            return self._missed(claimed.items, found, now)
        if wrong := outcomes_flaw(found.value):
            return self._missed(claimed.items, Missed(f"deliver returned {wrong}", defect=True), now)
        self._note_outage(entries, found.value)
        return self._settle(batch, found.value, now)

    async def gather(self) -> None:
        """Wait a moment, and while turns keep the process busy: a message that follows at once comes first, and the
        entries of several turns are delivered together."""
        await asyncio.sleep(PAUSE_SECONDS)
        await self.provider.yield_to_turns()

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:
        """Record the state of deliveries together with the outcomes. Entries given back, or without content, do not
        count."""
        if is_waiting_lane(claimed.lane) or not recorded:
            return
        last, now = recorded[-1], self._store.clock.now()
        over = [item for item, outcome in zip(claimed.items, recorded, strict=False) if isinstance(outcome, Done)]
        drop(tx, [item.id for item in over if _is_forgetting(item)])
        if any(item.payload and item.payload["kind"] == "undo" for item in claimed.items[: len(recorded)]):
            mark_forgotten(tx, self.provider.name, now=now)  # text fetched before now may contain it
        if isinstance(last, Done) and last.note != NOTHING_TO_SEND:
            record_delivery(tx, self.provider.name, None, now=now)
        elif not isinstance(last, Done) and last.reason is not None:
            record_delivery(tx, self.provider.name, last.reason, now=now)

    def settled(self, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:  # noqa: ARG002 - the shape
        """Address entries that have no address yet: their lane is free now, so they can follow."""
        if is_waiting_lane(claimed.lane):
            self.provider.address_soon()

    async def _look_after(self) -> None:
        """Regularly address waiting entries, and delete rows that were delivered long ago."""
        while True:
            self.provider.address_soon()
            self.provider.background.begin(self._prune(), "deleting delivered rows")
            await self._store.clock.sleep(ADDRESS_INTERVAL_SECONDS)

    async def _prune(self) -> None:
        name, before = self.provider.outbox.queue, self._store.clock.now() - DONE_RETENTION_SECONDS
        await self._store.write(lambda tx: prune(tx, name, before=before))

    def _settle(
        self, batch: Iterable[tuple[Item, Entry | None]], outcomes: Iterable[Outcome], now: float
    ) -> list[ItemOutcome]:
        """Return the outcomes of the items, in order; those that the plugin left out are retried."""
        given = iter(outcomes)
        settled: list[ItemOutcome] = []
        for item, entry in batch:
            if entry is None:
                settled.append(Done(NOTHING_TO_SEND))
                continue
            match next(given, None):
                case None:
                    settled.append(Retry(now + self._pause(item), "the provider gave no outcome"))
                case Delivered(note):
                    settled.append(Done(note and note[:MAX_REASON_CHARS]))
                case DeadLetter(reason):
                    settled.append(Dead(reason[:MAX_REASON_CHARS]))
                case Later(reason, after, everyone):
                    pause = min(self._pause(item), MAX_OUTAGE_BACKOFF_SECONDS if everyone else MAX_BACKOFF_SECONDS)
                    at = now + (pause if after is None else asked_pause(after))
                    settled.append(Retry(at, reason[:MAX_REASON_CHARS]))
        return settled

    def _pause(self, item: Item) -> float:
        """Return the back-off of an item in seconds."""
        return backoff(item.attempts, self._chance, base=MIN_BACKOFF_SECONDS, cap=MAX_BACKOFF_SECONDS)

    def _missed(self, items: Sequence[Item], missed: Missed, now: float) -> Sequence[ItemOutcome]:
        """Return the outcomes of a failed call. If the plugin raised or was too late, its requests may still have
        arrived."""
        if missed.skipped:
            return [Postponed(now + SKIPPED_RETRY_SECONDS, missed.reason)]
        at = now + self._pause(items[0])
        return [Defect(at, missed.reason) if missed.defect else Retry(at, missed.reason) for _ in items]

    def _note_outage(self, entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        """Report an outage when deliveries are repeatedly postponed or refused, and its end; the last outcome counts.
        Refused deletions are not counted. Pause all lanes if the server is down."""
        later = next((outcome for outcome in outcomes if isinstance(outcome, Later)), None)
        if later is None:
            self._put_off = 0
            match outcomes[-1:]:
                case [Delivered()]:
                    self.provider.health.worked("delivery")
                case [DeadLetter()] if entries[len(outcomes) - 1].kind in DELETIONS:
                    self.provider.health.worked("delivery")
                case [DeadLetter(reason)]:
                    self.provider.health.missed("delivery", f"delivery is refused: {reason[:MAX_REASON_CHARS]}")
            return
        self._put_off += 1
        if self._put_off >= OUTAGE_THRESHOLD:
            self.provider.health.missed("delivery", f"delivery is put off: {later.reason}")
        if later.everyone:
            self._worker.pause(
                self._store.clock.now() + (OUTAGE_PAUSE_SECONDS if later.after is None else asked_pause(later.after))
            )


def _is_forgetting(item: Item) -> bool:
    """Return True if an entry contains only forgotten words, which are deleted after its delivery."""
    row = item.payload
    return bool(row) and row["kind"] in ("correct", "note") and not row["text"]


def read_entry(store: Store, tx: Tx, item: Item) -> Entry | None:
    """Return the entry to deliver; None if memory may not have its message."""
    row = item.payload
    if row is None:
        return None
    text, at = row.get("text", ""), item.created_at
    if "message" in row:
        message = store.messages.get(tx, row["message"])
        if message is None or not store.incognito.remembered(tx, [message]):
            return None
        text, at = strip_fences(message.content or ""), message.timestamp
    data = row.get("data")
    if row["kind"] == "undo":
        data = describe_undo(tx, item.queue, data)
    return Entry(
        key=row["key"],
        kind=row["kind"],
        address=row["address"],
        text=text,
        at=at,
        speaker=Speaker.from_json(row.get("speaker")),
        session_id=item.session_id,
        data=data,
        tried_at=item.tried_at,
        queued_at=item.created_at,
    )


def asked_pause(seconds: float) -> float:
    """Return the pause that a plugin asks for, within the limits."""
    return min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, seconds))


def outcomes_flaw(outcomes: Sequence[object]) -> str:
    """Describe why outcomes cannot be recorded; "" if they can."""
    for outcome in outcomes:
        match outcome:
            case Delivered(note) if note is None or _is_text(note):
                pass
            case DeadLetter(reason) if _is_text(reason):
                pass
            case Later(reason, after) if _is_text(reason) and (after is None or _is_seconds(after)):
                pass
            case Delivered() | DeadLetter() | Later():
                return f"a {type(outcome).__name__} that cannot be recorded"
            case _:
                return f"{type(outcome).__name__}, which is no outcome"
    return ""


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:  # a lone surrogate: no database accepts it
        return False


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isnan(value)
