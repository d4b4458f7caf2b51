"""Which messages hold which words of a question, read from the index of words, and what was said at a time. There is no
index of times: the sessions that lasted then are found first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hermes.db.engine import Tx
from hermes.ranking.dates import Dates
from hermes.ranking.scoring import Flags, Floats, is_exact, rarity
from hermes.store.asking import HistoryQuestion
from hermes.store.reach import SearchReach
from hermes.store.schema import as_time
from hermes.store.words import segment

Ids = NDArray[np.int64]
HOLDERS = 3000
"""Of each word so many of its newest holders are read."""
FREQUENT = 8
"""At most so many frequent words are looked up, since a pasted page has many."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The messages that hold a word, in order."""

    word: str
    ids: Ids
    count: float
    """How many there are, also of those that were not looked at, as far as can be told."""


class Held:
    """Which messages hold which words."""

    def __init__(self, found: Sequence[Holders], size: int) -> None:
        """`size` is how many messages the words were looked for in."""
        self.words = [holders.word for holders in found]
        self.ids: Ids = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(holders.ids for holders in found)]))
        self.held = np.zeros((len(found), len(self.ids) + 1), dtype=bool)
        """A line for each word; the last place is that of no message."""
        for line, holders in zip(self.held, found, strict=True):
            line[np.searchsorted(self.ids, holders.ids)] = True
        self.exact: Flags = np.array([is_exact(holders.word, int(holders.count)) for holders in found], dtype=bool)
        self.weights: Floats = rarity(np.array([holders.count for holders in found]), size)

    def keep(self, words: frozenset[str]) -> bool:
        """Let only these words count, if any of them is held. Says whether that changes anything."""
        kept = np.array([word in words for word in self.words], dtype=bool)
        if not kept.any() or kept.all():
            return False
        self.weights = self.weights * kept
        self.exact = self.exact & kept
        return True

    def by_words(self) -> Ids:
        """The messages that hold most of what the question says first; of equals the newest."""
        scores = self.weights @ self.held[:, :-1]
        order = np.lexsort((-self.ids, -scores))
        return self.ids[order[scores[order] > 0]]

    def of(self, ids: Ids) -> NDArray[np.bool_]:
        """Which words these messages hold, a line for each word."""
        places = np.searchsorted(self.ids, ids)
        return self.held[:, np.where(np.append(self.ids, -1)[places] == ids, places, len(self.ids))]


def read_held(tx: Tx, asked: HistoryQuestion, allowed: Ids | None, hidden: Ids, most: int) -> Held:
    """Who of those that are allowed and not hidden holds the words: the `most` newest for each, and for a frequent word
    also those that hold a rarer one beside it, or all words. None allows everyone."""
    newest = int(tx.execute("SELECT max(message_id) FROM hermes_search_rows").fetchone()[0] or 0)
    index = _Index(tx, allowed, hidden, max(most, HOLDERS), newest)
    required = "".join(f" AND {_query(phrase)}" for phrase in asked.phrases)
    queries = {word: _query(word) + required for word in asked.words}
    found = {word: holders for word, query in queries.items() if len((holders := index.read(word, query)).ids)}
    frequent = [word for word, holders in found.items() if len(holders.ids) >= index.most]
    if len(found) > 1 and 0 < len(frequent) <= FREQUENT:
        rarer = " OR ".join(f"({queries[word]})" for word in found if word not in frequent)
        every = None if rarer else index.read("", " AND ".join(queries[word] for word in frequent)).ids
        for word in frequent:
            more = index.read(word, f"({queries[word]}) AND ({rarer})").ids if every is None else every
            found[word] = replace(found[word], ids=np.union1d(found[word].ids, more))
    return Held([*found.values()], newest if allowed is None else len(allowed))


def _query(words: str) -> str:
    """Words quoted for FTS5, so that nothing in them is taken for an operator."""
    return f'"{segment(words.replace("*", ""))}"'


@dataclass(frozen=True, slots=True)
class _Index:
    tx: Tx
    allowed: Ids | None
    hidden: Ids
    most: int
    newest: int

    def read(self, word: str, query: str) -> Holders:
        if self.allowed is None:
            ids = self._match(query, 1, self.newest, self.most + len(self.hidden))
            ids = ids[np.isin(ids, self.hidden, invert=True)][-self.most :]
            # Those that were not looked at are as frequent among older messages, as far as can be told.
            since = self.newest - int(ids[0]) + 1 if len(ids) >= self.most else self.newest
            return Holders(word, ids, len(ids) * self.newest / max(since, 1))
        if not len(self.allowed):
            return Holders(word, self.allowed, 0.0)
        ids = self._match(query, int(self.allowed[0]), int(self.allowed[-1]), -1)
        ids = ids[np.isin(ids, self.allowed) & np.isin(ids, self.hidden, invert=True)]
        return Holders(word, ids[-self.most :], float(len(ids)))

    def _match(self, query: str, first: int, last: int, most: int) -> Ids:
        return read_ids(
            self.tx,
            "SELECT rowid AS id FROM hermes_search WHERE hermes_search MATCH :query AND rowid BETWEEN :first AND :last "
            "ORDER BY rowid DESC LIMIT :most",
            {"query": query, "first": first, "last": last, "most": most},
        )


def read_ids(tx: Tx, query: str, values: Mapping[str, str | float]) -> Ids:
    """What a query selects as `id`, in order. They come as one text: a row for each takes four times as long."""
    return parse_ids(tx.execute(f"SELECT group_concat(id) FROM ({query})", values).fetchone()[0])


def parse_ids(text: str | None) -> Ids:
    """Ids with commas between them, in order."""
    return np.sort(np.fromstring(text or "", np.int64, sep=","))


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
