"""Messages that contain the words of a question, read from the word index, and messages of a date. Times have no index:
the sessions that lasted at the time are looked up first."""

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
MIN_READ_LIMIT = 3000
"""Number of newest messages read per word."""
MAX_FREQUENT_WORDS = 8
"""Maximum number of frequent words that are looked up a second time; a pasted page has many."""


@dataclass(frozen=True, slots=True)
class Holders:
    """The messages that contain a word, in order."""

    word: str
    ids: Ids
    count: float
    """Number of messages with the word; estimated if not all of them were read."""


class Held:
    """Table of which messages contain which words."""

    def __init__(self, found: Sequence[Holders], size: int) -> None:
        """`size` is the number of messages that were searched."""
        self.words = [holders.word for holders in found]
        self.ids: Ids = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(holders.ids for holders in found)]))
        self.held = np.zeros((len(found), len(self.ids) + 1), dtype=bool)
        """One line per word, one column per message, and a last column for "no message"."""
        for line, holders in zip(self.held, found, strict=True):
            line[np.searchsorted(self.ids, holders.ids)] = True
        self.exact: Flags = np.array([is_exact(holders.word, int(holders.count)) for holders in found], dtype=bool)
        self.weights: Floats = rarity(np.array([holders.count for holders in found]), size)

    def keep(self, words: frozenset[str]) -> bool:
        """Let only these words count. Return False, and change nothing, if that makes no difference or none of them is
        held."""
        kept = np.array([word in words for word in self.words], dtype=bool)
        if not kept.any() or kept.all():
            return False
        self.weights = self.weights * kept
        self.exact = self.exact & kept
        return True

    def by_words(self) -> Ids:
        """Return the messages with the most important words first; newest first among equals."""
        scores = self.weights @ self.held[:, :-1]
        order = np.lexsort((-self.ids, -scores))
        return self.ids[order[scores[order] > 0]]

    def of(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which words these messages contain, one line per word."""
        places = np.searchsorted(self.ids, ids)
        return self.held[:, np.where(np.append(self.ids, -1)[places] == ids, places, len(self.ids))]


def read_held(tx: Tx, asked: HistoryQuestion, allowed: Ids | None, hidden: Ids, most: int) -> Held:
    """Return which allowed and not hidden messages contain the words: the `most` newest per word. For a frequent word,
    also those that contain a rarer one too, or all of the words. `allowed=None` allows everything."""
    newest = int(tx.execute("SELECT max(message_id) FROM hermes_search_rows").fetchone()[0] or 0)
    index = _Index(tx, allowed, hidden, max(most, MIN_READ_LIMIT), newest)
    required = "".join(f" AND {_query(phrase)}" for phrase in asked.phrases)
    queries = {word: _query(word) + required for word in asked.words}
    found = {word: holders for word, query in queries.items() if len((holders := index.read(word, query)).ids)}
    frequent = [word for word, holders in found.items() if len(holders.ids) >= index.most]
    if len(found) > 1 and 0 < len(frequent) <= MAX_FREQUENT_WORDS:
        rarer = " OR ".join(f"({queries[word]})" for word in found if word not in frequent)
        every = None if rarer else index.read("", " AND ".join(queries[word] for word in frequent)).ids
        for word in frequent:
            more = index.read(word, f"({queries[word]}) AND ({rarer})").ids if every is None else every
            found[word] = replace(found[word], ids=np.union1d(found[word].ids, more))
    return Held([*found.values()], newest if allowed is None else len(allowed))


def _query(words: str) -> str:
    """Return words quoted for FTS5, so that none of them is taken for an operator."""
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
            # Estimate: the word is as frequent among older messages, which were not read.
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
    """Return the ids that a query selects as `id`, in order. They are read as one text: one row each takes four times
    as long."""
    return parse_ids(tx.execute(f"SELECT group_concat(id) FROM ({query})", values).fetchone()[0])


def parse_ids(text: str | None) -> Ids:
    """Return the ids of a comma-separated list, in order."""
    return np.sort(np.fromstring(text or "", np.int64, sep=","))


MAX_TIME_SPANS = 24
"""Maximum number of days, months or years of a question that are searched."""
MAX_DATED_MESSAGES = 100
"""Maximum number of messages found by date, newest first."""
MONTHS = range(1, 13)
LASTED = (
    "SELECT p.id FROM sessions p WHERE p.started_at < :until AND :since <= "
    "(SELECT q.timestamp FROM messages q WHERE q.session_id = p.id ORDER BY q.id DESC LIMIT 1)"
)
"""Sessions that lasted at a time. Messages of one session are stored in the order of their times."""


def find_by_date(tx: Tx, reach: SearchReach, dates: Dates) -> list[int]:
    """Return the newest messages of the named days, else of the named months, else of the named years."""
    found: list[tuple[float, int]] = []
    for since, until in _spans(tx, dates):
        rows = tx.execute(
            f"SELECT t.timestamp, t.id FROM {reach.rows} WHERE t.session_id IN ({LASTED}) "
            "AND t.timestamp >= :from AND t.timestamp < :to AND t.role IN ('user', 'assistant') "
            f"AND t.content <> '' AND {reach.where} ORDER BY t.timestamp DESC, t.id DESC LIMIT :most",
            {"since": since, "until": until, **reach.values, "from": since, "to": until, "most": MAX_DATED_MESSAGES},
        )
        found += [(row[0], row[1]) for row in rows]
    return [key for _, key in sorted(found, reverse=True)[:MAX_DATED_MESSAGES]]


def _spans(tx: Tx, dates: Dates) -> list[tuple[float, float]]:
    """Return start and end of each named time, newest first. A date without a year matches every year."""
    first, last = (tx.execute(f"SELECT {end}(started_at) FROM sessions").fetchone()[0] for end in ("min", "max"))
    newest = tx.execute("SELECT timestamp FROM messages ORDER BY id DESC LIMIT 1").fetchone()
    if newest is None:
        return []
    began, *ends = (datetime.fromtimestamp(as_time(at)).year for at in (first, last, newest[0]))
    ended = max(ends)
    years = [year for year in range(ended, began - 1, -1) if not dates.years or year in dates.years]
    return list(_in_years(years, dates))[:MAX_TIME_SPANS]


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
