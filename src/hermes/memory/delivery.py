"""Delivery: rows of the outbox become entries, the plugin delivers them, and what came of it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isnan

from hermes.db.engine import Tx
from hermes.db.outcomes import Dead, Done, ItemOutcome, Retry
from hermes.db.queue import Item, backoff
from hermes.fence import strip_fences
from hermes.memory.undoing import describe_undo
from hermes.memory.values import Delivered, Entry, Later, Outcome, Parked, Speaker
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


def settle_batch(
    batch: Iterable[tuple[Item, Entry | None]],
    outcomes: Iterable[Outcome],
    *,
    now: float,
    chance: Callable[[], float],
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
                settled.append(Retry(now + pause_of(item, chance), "the provider gave no outcome"))
            case Delivered(note):
                settled.append(Done(note and note[:LONGEST_REASON]))
            case Parked(reason):
                settled.append(Dead(reason[:LONGEST_REASON]))
            case Later(reason, after, everyone):
                pause = pause_of(item, chance) if after is None else asked_pause(after)
                if everyone and after is None:
                    pause = min(pause, CAP_FOR_ALL)
                settled.append(Retry(now + pause, reason[:LONGEST_REASON]))
    return settled


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


def pause_of(item: Item, chance: Callable[[], float]) -> float:
    """Seconds until an item is tried again, longer each time."""
    return backoff(item.attempts, chance, base=BASE, cap=CAP)
