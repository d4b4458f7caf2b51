"""Delivery: rows of the outbox become entries, the plugin delivers them, and what came of it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.db.outcomes import Dead, Done, Retry
from hermes.db.outcomes import Outcome as QueueOutcome
from hermes.db.queue import Claim, Item, backoff
from hermes.memory.values import Delivered, Entry, Later, Outcome, Parked, Speaker
from hermes.store.memory_rows import find_place
from hermes.store.store import Store

LEASE = 60.0
"""Seconds that a lane is held for one batch."""
BATCH = 50
BASE, CAP = 1.0, 300.0
GONE, UNWANTED = "gone", "not wanted"


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of a claim: those that have something to deliver with their entries, in order, and what became of the
    others."""

    items: tuple[Item, ...]
    entries: tuple[Entry | None, ...]

    @property
    def to_deliver(self) -> list[Entry]:
        return [entry for entry in self.entries if entry is not None]


def read_batch(store: Store, tx: Tx, provider: str, claimed: Claim) -> Batch:
    """What the rows of a claim tell of, as it is now: a message that was deleted, or is incognito, has no entry."""
    entries = [_read_entry(store, tx, provider, item) for item in claimed.items]
    return Batch(claimed.items, tuple(entries))


def _read_entry(store: Store, tx: Tx, provider: str, item: Item) -> Entry | None:
    row = item.payload
    if row is None or not _is_wanted(tx, provider, item):
        return None
    text, at = row.get("text", ""), item.created_at
    if "message" in row:
        message = store.messages.get(tx, row["message"])
        if message is None or not store.incognito.remembered(tx, message.session_id, [message]):
            return None
        text, at = message.content or "", message.timestamp
    return Entry(
        key=row["key"],
        kind=row["kind"],
        address=row["address"],
        text=text,
        at=at,
        speaker=Speaker.from_json(row.get("speaker")),
        session_id=item.session_id,
        data=row.get("data"),
        tried_at=item.tried_at,
    )


def _is_wanted(tx: Tx, provider: str, item: Item) -> bool:
    """Entries that were recorded before their provider said what it wants are judged now."""
    place = None if item.session_id is None else find_place(tx, provider, item.session_id)
    return place is None or place.address is None or item.payload["kind"] in place.address["wants"]


def settle_batch(
    batch: Batch, outcomes: Sequence[Outcome], *, now: float, chance: Callable[[], float]
) -> list[QueueOutcome]:
    """What became of the items, first to last, up to where the plugin said nothing more."""
    told = iter(outcomes)
    settled: list[QueueOutcome] = []
    for item, entry in zip(batch.items, batch.entries, strict=True):
        if entry is None:
            settled.append(Done(GONE))
            continue
        match next(told, None):
            case None:
                settled.append(Retry(now + pause_of(item, chance), "the provider gave no outcome"))
            case Delivered(note):
                settled.append(Done(note))
            case Parked(reason):
                settled.append(Dead(reason))
            case Later(reason, after):
                settled.append(Retry(now + (pause_of(item, chance) if after is None else after), reason))
    return settled


def pause_of(item: Item, chance: Callable[[], float]) -> float:
    """Seconds until an item is tried again, longer each time."""
    return backoff(item.attempts, chance, base=BASE, cap=CAP)
