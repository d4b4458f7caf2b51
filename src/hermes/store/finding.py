"""History search: from a question to matching messages, ranked by all evidence together.

question ── words, quotes, names, dates ── holders of each word ─┐
                                       └── messages of a date ───┴─ the message after each ── evidence ── score

Messages that contain the words of a question, read from the word index, and messages of a date. Times have no index:
the sessions that lasted at the time are looked up first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hermes.db.engine import Tx
from hermes.ranking import traits
from hermes.ranking.dates import Dates
from hermes.ranking.scoring import MIN_LONG_WORDS, Evidence, Flags, Floats, is_exact, rarity, score
from hermes.store.asking import HistoryQuestion, understand
from hermes.store.reach import SearchReach
from hermes.store.schema import as_text, as_time, storable
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


MAX_SCORED_MESSAGES = 60
"""Number of messages with matching words that are scored; further ones follow unscored."""
MAX_SCANNED_MESSAGES = 2000
"""Number of newest messages that are scanned for a text without words, such as an emoji."""
MAX_WORD_COUNT = 3
"""Number of times that a word counts within one session."""
MAX_TOPIC_SESSION_SIZE = 400
"""Sessions with more messages than this are not ranked by their topic."""
DAY_SECONDS = 86_400
ANY_TIME = {"since": 0.0, "until": 1e12}
"""Time span of a search that is not limited in time."""


class KnownMessage(NamedTuple):
    id: int
    session_id: str
    role: str
    traits: int
    day: int
    author: str | None
    session_size: int
    is_shown: bool
    """True if the message may be a result. Others only serve as context of the next message."""


def rank(tx: Tx, reach: SearchReach, text: str, limit: int) -> list[int]:
    """Return the ids of matching messages, best first: at least `limit`, if there are as many. Scored messages are
    within reach; unscored ones at the end may not be."""
    asked = understand(text)
    then = find_by_date(tx, reach, asked.dates) if asked.dates and not asked.phrases else []
    if not asked.words and not then:
        asked = replace(asked, words=asked.of_dates)
    hidden = parse_ids(None) if reach.hidden is None else read_ids(tx, reach.hidden, {})
    held = read_held(tx, asked, _allowed(tx, reach), hidden, limit)
    if not len(held.ids) and not then:
        return [] if asked.words else _scan_newest(tx, reach, text, limit)
    found = _gather(tx, reach, held, then)
    named = asked.named({one.author for one, _ in found if one.author})
    if named and held.keep(asked.words_without(named)):
        found = _gather(tx, reach, held, then)
    direct = {*held.ids.tolist(), *then}
    shown = [pair for pair in found if pair[0].is_shown and (pair[0].id in direct or _answers(asked, pair[1]))]
    scores = score(_weigh(tx, asked, held, shown, named))
    found_ids = _ids([one for one, _ in shown])
    best: list[int] = found_ids[np.lexsort((-found_ids, -scores))].tolist()
    if len(best) >= limit:
        return best
    weighed = {*best}
    return [*best, *(key for key in held.by_words().tolist() if key not in weighed)]


def _answers(asked: HistoryQuestion, before: KnownMessage | None) -> bool:
    """Return True if a message without the words may be an answer: it follows a question with them, and nothing is
    quoted."""
    return not asked.phrases and before is not None and bool(before.traits & traits.ASKS)


def _allowed(tx: Tx, reach: SearchReach) -> Ids | None:
    """Return the message ids within the reached sessions and time, in order; None if the search is not limited."""
    conditions = [] if reach.sessions is None else [f"t.session_id IN ({reach.sessions})"]
    if reach.time:
        conditions += [f"t.session_id IN ({LASTED})", reach.time]
    if not conditions:
        return None
    return read_ids(tx, f"SELECT t.id FROM messages t WHERE {' AND '.join(conditions)}", {**ANY_TIME, **reach.values})


def _gather(
    tx: Tx, reach: SearchReach, held: Held, then: Sequence[int]
) -> list[tuple[KnownMessage, KnownMessage | None]]:
    """Return the candidates, each with the message before it: messages with most of the words or of the date, and those
    that follow them."""
    direct = {*held.by_words()[:MAX_SCORED_MESSAGES].tolist(), *then}
    before = _with_following(tx, reach, [*direct])
    known = _read(tx, reach, [*{*before, *before.values()}])
    return [(known[key], known.get(earlier)) for key, earlier in before.items() if key in known]


def _with_following(tx: Tx, reach: SearchReach, direct: Sequence[int]) -> dict[int, int]:
    """Map each of these messages, and each that directly follows one, to the message before it (0 for none)."""
    near = (
        "SELECT t.id FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
        "WHERE t.session_id = m.session_id AND t.role IN ('user', 'assistant') AND t.content <> '' "
        f"AND {reach.said} AND t.id"
    )
    rows = tx.execute(
        f"SELECT m.id, coalesce(({near} < m.id ORDER BY t.id DESC LIMIT 1), 0), "
        f"coalesce(({near} > m.id ORDER BY t.id LIMIT 1), 0) "
        "FROM json_each(:ids) c JOIN messages m ON m.id = c.value",
        {**reach.values, "ids": json.dumps(direct)},
    ).fetchall()
    return {after: key for key, _, after in rows if after} | {key: before for key, before, _ in rows}


def _read(tx: Tx, reach: SearchReach, ids: Sequence[int]) -> dict[int, KnownMessage]:
    rows = tx.execute(
        "SELECT t.id, t.session_id, t.role, t.content, t.timestamp, x.author_name, coalesce(s.message_count, 0), "
        f"{reach.shown} FROM {reach.rows} WHERE t.id IN (SELECT value FROM json_each(:ids)) AND {reach.where}",
        {**reach.values, "ids": json.dumps(ids)},
    )
    return {
        row[0]: KnownMessage(
            row[0],
            row[1],
            row[2],
            traits.traits_of(as_text(row[3]) or ""),
            _day(as_time(row[4])),
            row[5].casefold() if row[5] else None,
            int(row[6]),
            bool(row[7]),
        )
        for row in rows
    }


def _day(seconds: float) -> int:
    """Return the number of the local calendar day of a time."""
    return int(seconds + time.localtime(seconds).tm_gmtoff) // DAY_SECONDS


def _weigh(
    tx: Tx,
    asked: HistoryQuestion,
    held: Held,
    shown: Sequence[tuple[KnownMessage, KnownMessage | None]],
    named: Sequence[str],
) -> Evidence:
    """Return the evidence for each of the messages."""
    chosen, before = [one for one, _ in shown], [one for _, one in shown]
    kinds = np.array([one.traits for one in chosen], dtype=np.int64)
    kinds_before = np.array([one.traits if one else 0 for one in before], dtype=np.int64)
    is_short = np.array([one is not None for one in before], dtype=bool) & (
        traits.count_words(kinds_before) < MIN_LONG_WORDS
    )
    own = held.of(_ids(chosen))
    earlier = held.of(_ids(before)) & is_short
    weights = held.weights / max(float(held.weights.sum()), 1e-6)
    sizes = {one.session_id: one.session_size for one in chosen}
    places = {session: place for place, session in enumerate(sizes)}
    author = named[0].casefold() if len(named) == 1 else None
    by_named = [one.author == author if author else not named and one.role == asked.role for one in chosen]
    nothing = np.zeros(len(chosen), dtype=np.float32)
    return Evidence(
        words=weights @ own,
        before=weights @ earlier,
        only_before=weights @ (earlier & ~own),
        meaning=nothing,
        meaning_before=nothing,
        exact=np.logical_or.reduce(own[held.exact], axis=0),
        by_named=np.array(by_named, dtype=bool),
        oneself=kinds & traits.OF_ONESELF != 0,
        question=kinds & traits.IS_QUESTION != 0,
        after_question=kinds_before & traits.ASKS != 0,
        time=(kinds & traits.NAMES_TIME != 0) & asked.asks_when,
        date=asked.dates.fit(np.array([one.day for one in chosen], dtype=np.int32)) if asked.dates else nothing,
        length=traits.count_words(kinds),
        session=np.array([places[one.session_id] for one in chosen], dtype=np.int64),
        session_words=_session_words(tx, held, sizes, weights),
        session_size=np.array([*sizes.values()], dtype=np.int64),
    )


def _ids(messages: Sequence[KnownMessage | None]) -> Ids:
    return np.array([one.id if one else 0 for one in messages], dtype=np.int64)


def _session_words(tx: Tx, held: Held, sizes: Mapping[str, int], weights: Floats) -> Floats:
    """Return each session's share of the question's words, higher for repeated words; 0 for large sessions."""
    small = [place for place, size in enumerate(sizes.values()) if size <= MAX_TOPIC_SESSION_SIZE]
    if len(sizes) < 2 or not small or not held.words:
        return np.zeros(len(sizes))
    keys = [*sizes]
    rows = tx.execute(
        "SELECT c.key, group_concat(t.id) FROM json_each(?) c JOIN messages t ON t.session_id = c.value GROUP BY c.key",
        (json.dumps([keys[place] for place in small]),),
    )
    said = {small[key]: parse_ids(ids) for key, ids in rows}
    session = np.repeat([*said], [len(ids) for ids in said.values()])
    holds = held.of(np.concatenate([*said.values()]))
    counts = np.stack([np.bincount(session[line], minlength=len(sizes)) for line in holds])
    shares: Floats = weights @ np.sqrt(np.minimum(counts, MAX_WORD_COUNT) / MAX_WORD_COUNT)
    return shares


def _scan_newest(tx: Tx, reach: SearchReach, text: str, limit: int) -> list[int]:
    """Return the ids of recent messages that contain a text without words, such as an emoji."""
    part = text.strip('" \t\n')
    if not part:
        return []
    newest = int(tx.execute("SELECT max(id) FROM messages").fetchone()[0] or 0)
    rows = tx.execute(
        f"SELECT t.id FROM {reach.rows} WHERE t.id > :after AND instr(t.content, :part) AND {reach.where} "
        "ORDER BY t.id DESC LIMIT :limit",
        {**reach.values, "after": newest - MAX_SCANNED_MESSAGES, "part": storable(part), "limit": limit},
    )
    return [row[0] for row in rows]
