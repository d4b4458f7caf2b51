"""Deliveries: rows of the outbox become entries, the plugin delivers them, and what came of it is recorded. Every
process that talks with people has a worker for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from operator import methodcaller

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.db.isolation import Isolation
from hermes.db.outcomes import Dead, Defect, Done, ItemOutcome, Postponed, Retry
from hermes.db.queue import Claim, Item, backoff
from hermes.db.queue_items import drop, prune, stats
from hermes.db.worker import QueueWorker, Work, WorkerTerms
from hermes.fence import strip_fences
from hermes.memory.active import ActiveProvider
from hermes.memory.forgetting import mark_forgotten
from hermes.memory.outbox import is_waiting_lane
from hermes.memory.plugin_thread import Hook, Missed
from hermes.memory.undoing import describe_undo
from hermes.memory.values import Delivered, Entry, EntryKind, Later, Outcome, Parked, Speaker
from hermes.store.memory_rows import record_delivery
from hermes.store.store import Store

LEASE = 60.0
"""Seconds that a lane is held for one batch."""
BATCH = 50
BASE, CAP, CAP_FOR_ALL = 1.0, 300.0, 60.0
"""Seconds of the back-off: its first step and its longest, and the longest while the whole provider is down, so that it
is soon seen when a key or the server was changed."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 86_400.0
"""Seconds of a pause that a plugin may ask for."""
LONGEST_REASON = 1000
"""Characters of a note or reason that are kept."""
GONE = "gone"
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
        self.isolation = Isolation()
        self._worker = QueueWorker(
            provider.store,
            provider.store.clock,
            provider.outbox.queue,
            self,
            owner=owner,
            terms=WorkerTerms(ttl=LEASE, batch=BATCH, at_once=at_once, keeps_lost=True),
            chance=chance,
            wake=provider.wake,
            isolation=self.isolation,
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
        """Deliver what several turns left together, while they keep the process busy."""
        await self.provider.yield_to_turns()

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

    def _settle(
        self, batch: Iterable[tuple[Item, Entry | None]], outcomes: Iterable[Outcome], now: float
    ) -> list[ItemOutcome]:
        """What became of the items, first to last, up to where the plugin said nothing more."""
        told = iter(outcomes)
        settled: list[ItemOutcome] = []
        for item, entry in batch:
            if entry is None:
                settled.append(Done(GONE))
                continue
            match next(told, None):
                case None:
                    settled.append(Retry(now + self._pause(item), "the provider gave no outcome"))
                case Delivered(note):
                    settled.append(Done(note and note[:LONGEST_REASON]))
                case Parked(reason):
                    settled.append(Dead(reason[:LONGEST_REASON]))
                case Later(reason, after, everyone):
                    pause = min(self._pause(item), CAP_FOR_ALL if everyone else CAP)
                    at = now + (pause if after is None else asked_pause(after))
                    settled.append(Retry(at, reason[:LONGEST_REASON]))
        return settled

    def _pause(self, item: Item) -> float:
        """Seconds until an item is tried again, longer each time."""
        return backoff(item.attempts, self._chance, base=BASE, cap=CAP)

    def _missed(self, items: Sequence[Item], missed: Missed, now: float) -> Sequence[ItemOutcome]:
        """The plugin was not asked, raised, or was too late: then what it had begun may have arrived."""
        if missed.skipped:
            return [Postponed(now + NOT_NOW, missed.reason)]
        at = now + self._pause(items[0])
        return [Defect(at, missed.reason) if missed.defect else Retry(at, missed.reason) for _ in items]

    def _note_outage(self, entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
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


def read_entry(store: Store, tx: Tx, item: Item) -> Entry | None:
    """The entry to deliver; None for one whose message was deleted or is incognito, which has nothing left to send."""
    row = item.payload
    if row is None:
        return None
    text, at = row.get("text", ""), item.created_at
    if "message" in row:
        message = store.messages.get(tx, row["message"])
        if message is None or not store.incognito.remembered(tx, message.session_id, [message]):
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
    """The pause that a plugin asks for, within bounds."""
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, seconds))


def outcomes_flaw(outcomes: Sequence[object]) -> str:
    """What makes outcomes impossible to record, in words; "" when they are fine."""
    for outcome in outcomes:
        match outcome:
            case Delivered(note) if note is None or _is_text(note):
                pass
            case Parked(reason) if _is_text(reason):
                pass
            case Later(reason, after) if _is_text(reason) and (after is None or _is_seconds(after)):
                pass
            case Delivered() | Parked() | Later():
                return f"a {type(outcome).__name__} that cannot be recorded"
            case _:
                return f"{type(outcome).__name__}, which is no outcome"
    return ""


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:  # half a character: no database takes it
        return False


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isnan(value)
