"""What was said at a time. There is no index of times: the sessions that lasted then are found first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product

from hermes.db.engine import Tx
from hermes.ranking.dates import Dates
from hermes.store.reach import SearchReach
from hermes.store.schema import as_time

SPANS = 24
"""How many days, months or years of a question are looked at."""
MOST = 100
"""How many messages are found, the newest first."""
MONTHS = range(1, 13)
LASTED = (
    "SELECT p.id FROM sessions p WHERE p.started_at < :until AND :since <= "
    "(SELECT q.timestamp FROM messages q WHERE q.session_id = p.id ORDER BY q.id DESC LIMIT 1)"
)
"""The sessions that lasted at a time. What was said in one was said in order."""


def said_then(tx: Tx, reach: SearchReach, dates: Dates) -> list[int]:
    """The newest messages of the days that are named, or else of the months, or else of the years."""
    found: list[tuple[float, int]] = []
    for since, until in _spans(tx, dates):
        rows = tx.execute(
            f"SELECT t.timestamp, t.id FROM {reach.rows} WHERE t.session_id IN ({LASTED}) "
            "AND t.timestamp >= :from AND t.timestamp < :to AND t.role IN ('user', 'assistant') "
            f"AND t.content <> '' AND {reach.where} ORDER BY t.timestamp DESC, t.id DESC LIMIT :most",
            {"since": since, "until": until, **reach.values, "from": since, "to": until, "most": MOST},
        )
        found += [(row[0], row[1]) for row in rows]
    return [key for _, key in sorted(found, reverse=True)[:MOST]]


def _spans(tx: Tx, dates: Dates) -> list[tuple[float, float]]:
    """Beginning and end of each time that is named, the newest first. Without a year it is that of any year."""
    first, last = (tx.execute(f"SELECT {end}(started_at) FROM sessions").fetchone()[0] for end in ("min", "max"))
    newest = tx.execute("SELECT timestamp FROM messages ORDER BY id DESC LIMIT 1").fetchone()
    if newest is None:
        return []
    began, *ends = (datetime.fromtimestamp(as_time(at)).year for at in (first, last, newest[0]))
    ended = max(ends)
    years = [year for year in range(ended, began - 1, -1) if not dates.years or year in dates.years]
    return list(_in_years(years, dates))[:SPANS]


def _in_years(years: list[int], dates: Dates) -> Iterator[tuple[float, float]]:
    months = sorted(dates.months & {*MONTHS}, reverse=True)
    for year, month in product(years, months or [1]):
        if not months:
            yield datetime(year, 1, 1).timestamp(), datetime(year + 1, 1, 1).timestamp()
        elif not dates.days:
            yield datetime(year, month, 1).timestamp(), datetime(year + month // 12, month % 12 + 1, 1).timestamp()
        for day in sorted(dates.days, reverse=True) if months else ():
            start = datetime(year, month, 1) + timedelta(days=day - 1)
            if start.month == month:
                yield start.timestamp(), (start + timedelta(days=1)).timestamp()
