"""Activity of a profile over time: turns, seconds to their replies, and requests and tokens of models."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.store.store import Store
from hermes.store.usage import usage_by_hour
from hermes.types import Spent

ActivitySpan: TypeAlias = Literal["day", "month"]
SPANS: Mapping[str, ActivitySpan] = {"day": "day", "month": "month"}
HOURS, DAYS = 24, 30
MAX_MESSAGES = 20_000
"""The newest messages that are searched for turns."""
MAX_TURN_SECONDS = 86_400.0
"""Longer turns are ignored: their replies were imported or came after a restart, and nobody waited for them."""
SLOW_SHARE = 0.95


class ActivityBucket(Struct, frozen=True):
    """The activity of one hour or day that begins at `at`. Seconds run from a stored message to its stored reply:
    their median, and their 95th percentile; None without turns."""

    at: float
    turns: int
    median_seconds: float | None
    slow_seconds: float | None
    requests: int
    prompt_tokens: int
    completion_tokens: int


def read_activity(store: Store, tx: Tx, span: ActivitySpan, now: float) -> list[ActivityBucket]:
    """Return the buckets of the last 24 hours or 30 days, the oldest first. Days are in the machine's time zone."""
    starts = _starts(span, now)
    took: dict[int, list[float]] = defaultdict(list)
    spent: dict[int, Spent] = defaultdict(Spent)
    for at, seconds in _read_turns(store, tx):
        if at >= starts[0]:
            took[bisect_right(starts, at) - 1].append(seconds)
    for at, one in usage_by_hour(tx, starts[0]):
        number = max(0, bisect_right(starts, at) - 1)
        spent[number] = spent[number] + one
    return [_bucket(at, sorted(took[number]), spent[number]) for number, at in enumerate(starts)]


def _starts(span: ActivitySpan, now: float) -> list[float]:
    here = datetime.fromtimestamp(now)
    if span == "day":
        hour = here.replace(minute=0, second=0, microsecond=0).timestamp()
        return [hour - 3600.0 * back for back in reversed(range(HOURS))]
    day = here.replace(hour=0, minute=0, second=0, microsecond=0)
    return [(day - timedelta(days=back)).timestamp() for back in reversed(range(DAYS))]


def _read_turns(store: Store, tx: Tx) -> list[tuple[float, float]]:
    """Return the start of each of the newest turns, and the seconds to its reply."""
    begun: dict[str, float] = {}
    turns = []
    for session_id, at, is_reply in store.messages.newest_times(tx, MAX_MESSAGES):
        if not is_reply:
            begun[session_id] = at
        elif (said_at := begun.pop(session_id, None)) is not None and 0 <= at - said_at <= MAX_TURN_SECONDS:
            turns.append((said_at, at - said_at))
    return turns


def _bucket(at: float, took: list[float], spent: Spent) -> ActivityBucket:
    middle = round(median(took), 3) if took else None
    slow = round(took[min(len(took) - 1, int(len(took) * SLOW_SHARE))], 3) if took else None
    return ActivityBucket(at, len(took), middle, slow, spent.requests, spent.prompt_tokens, spent.completion_tokens)
