"""History search: from a question to matching messages, ranked by all evidence together.

question ── words, quotes, names, dates ── holders of each word ─┐
                                       └── messages of a date ───┴─ the message after each ── evidence ── score
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hermes.db.engine import Tx
from hermes.ranking import traits
from hermes.ranking.scoring import MIN_LONG_WORDS, Evidence, Floats, score
from hermes.store.asking import HistoryQuestion, understand
from hermes.store.holders import LASTED, Held, Ids, find_by_date, parse_ids, read_held, read_ids
from hermes.store.reach import SearchReach
from hermes.store.schema import as_text, as_time, storable

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
