"""From a question to the messages that may answer it (candidates), each with the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from hermes.memory_server import times
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.tables import messages
from hermes.memory_server.db.text_index import MessageIds, SearchArea
from hermes.memory_server.engine.allowed import Allowed
from hermes.memory_server.engine.asking import SearchWords
from hermes.memory_server.engine.outline import NONE, OutlineRows, Positions, byte_sums
from hermes.memory_server.engine.outlines import Seen
from hermes.memory_server.engine.words import WordHolders, find_holders
from hermes.ranking import traits
from hermes.ranking.dates import Dates
from hermes.ranking.relative_times import resolve
from hermes.ranking.scoring import ESSAY, LONG, Evidence, Flags, Floats, is_exact, rarity
from hermes.ranking.words import is_pair

BY_WORDS = 250
BY_MEANING = 120
"""How many candidates are taken by their words and by their meaning; half as many within one session or author."""
LOOKED_AT = 5000
"""Up to how many of the closest messages are checked one by one against a filter. If too few of them pass, the filter
is evaluated for all messages instead."""
FURTHER = 0.5
"""A word two messages back counts for this share of what it counts one message back."""
HAPPENED = 0.25
"""What happened on a date fits it better by this share than what was said on it."""
HAPPENED_WORDS = 120
"""Only messages of up to so many words are read for when something happened, since a question waits for it."""
REPEATED = 3
"""A word that a session repeats counts at most so many times."""
Masks = NDArray[Any]
MASKS: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""A bit for each word of a question: there are no more than 48."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Messages with the evidence for each, in no particular order."""

    ids: MessageIds
    evidence: Evidence
    known: float
    """The share of the question's words that anybody uses."""
    rows: Positions
    """Where they are in the outline."""


def find_candidates(tx: Tx, seen: Seen, place: SearchArea, asked: SearchWords, allowed: Allowed | None) -> Candidates:
    """The messages of a place that hold the words, or are close in meaning, or come right after one of these."""
    rows = seen.rows
    inside = _inside(rows, place)
    within = None if inside is None else inside.nonzero()[0]
    size = len(rows) if within is None else len(within)
    held = HeldWords(rows, find_holders(tx, seen, place, inside, asked, allowed), asked, size)
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[held.best(BY_WORDS if within is None else BY_WORDS // 2)] = True
    chosen[rows.begin(_by_meaning(tx, rows, within, asked, allowed))] = True
    following = _following(rows, chosen.nonzero()[0], place)
    if allowed is not None and len(following):
        following = rows.first(allowed.keep(tx, rows.ids[following]))
    chosen[following] = True
    places = chosen.nonzero()[0]
    places = places[rows.traits[places] & asked.withheld == 0]
    evidence = weigh(seen, places, asked, held)
    if asked.dates:
        evidence = replace(evidence, date=_fit_dates(tx, rows, places, asked.dates))
    return Candidates(rows.ids[places], evidence, held.known, places)


class HeldWords:
    """Which rows hold which words of a question. The words that a row holds are the bits of one number, its mask."""

    def __init__(self, rows: OutlineRows, holders: WordHolders, asked: SearchWords, size: int) -> None:
        """`size` is how many messages the words were looked for in."""
        self.words, self.rows = holders.words, holders.rows
        counts = np.array([len(places) for places in self.rows], dtype=np.float32)
        weights = rarity(counts, size)  # how much each word tells
        total = float(weights.sum())
        unknown = np.log1p(2 * size + 1) * sum(0.5 if is_pair(w) else 1.0 for w in asked.words if w not in self.words)
        self.known = float(total / max(total + unknown, 1e-6))
        """The share of the question's words that anybody uses. A pair of characters may be no word at all."""
        self.shares = weights / np.float32(max(total, 1e-6))
        """What each word is worth; 1.0 together."""
        self._sums = byte_sums(self.shares)
        kind = next(kind for bits, kind in MASKS.items() if bits >= len(self.words))
        self.masks = np.zeros(len(rows) + 1, dtype=kind)
        """For each row of the outline. The last, NONE, is that of no message."""
        for bit, places in enumerate(self.rows):
            self.masks[places] |= kind(1 << bit)
        self.masks[holders.all_of_them] = kind((1 << len(self.words)) - 1)

    def share(self, masks: Masks) -> Floats:
        """The share of the question's words that is in each of these masks."""
        found: Floats = self._sums[0][masks if masks.itemsize == 1 else masks & 255]
        for place in range(1, len(self._sums)):  # a mask may have more bytes than there are words for
            found += self._sums[place][masks >> 8 * place & 255]
        return found

    @property
    def exact(self) -> int:
        """The mask of numbers that are meant exactly."""
        held = zip(self.words, self.rows, strict=True)
        return sum(1 << bit for bit, (word, places) in enumerate(held) if is_exact(word, len(places)))

    def best(self, wanted: int) -> Positions:
        """The rows that hold most of what the question says; of equals the newest.

        How often a message holds a word was worth less than nothing where we measured it.
        """
        some: Positions = (self.masks[:NONE] != 0).nonzero()[0]
        if len(some) <= wanted:
            return some
        scores = self.share(self.masks[some])
        least = np.sort(scores)[-wanted]  # with so few values faster than a partition
        above = some[scores > least]
        return np.concatenate([above, some[scores == least][len(above) - wanted :]])


def _inside(rows: OutlineRows, place: SearchArea) -> Flags | None:
    """Which rows are in a place; None for all."""
    inside: Flags | None = None
    if place.sessions is not None:
        inside = (
            rows.sessions == place.sessions[0]
            if len(place.sessions) == 1
            else np.isin(rows.sessions, np.array(place.sessions, dtype=np.int32))
        )
    if place.peer is not None:
        own = rows.peers == place.peer
        inside = own if inside is None else inside & own
    return inside


def _by_meaning(
    tx: Tx, rows: OutlineRows, within: Positions | None, asked: SearchWords, allowed: Allowed | None
) -> Positions:
    if not asked.vector.any():
        return np.zeros(0, dtype=np.int64)
    if allowed is None:
        return rows.nearest(asked.vector, BY_MEANING if within is None else BY_MEANING // 2, within)
    wanted = BY_MEANING
    while allowed.known is None and wanted <= LOOKED_AT:
        near = np.unique(rows.ids[rows.nearest(asked.vector, wanted, within)])
        kept = rows.first(allowed.keep(tx, near))
        if len(kept) >= BY_MEANING // 3 or len(near) < wanted // 2:
            return kept
        wanted *= 8
    inside = np.flatnonzero(np.isin(rows.ids, allowed.all(tx)))
    return rows.nearest(asked.vector, BY_MEANING, inside if within is None else np.intersect1d(inside, within))


def _following(rows: OutlineRows, chosen: Positions, place: SearchArea) -> Positions:
    """The messages that come right after these, in the same place."""
    after = rows.after[rows.last(chosen)]
    after = after[(after != NONE) & (after < len(rows))]
    own: Positions = after if place.peer is None else after[rows.peers[after] == place.peer]
    return own


def weigh(seen: Seen, chosen: Positions, asked: SearchWords, held: HeldWords) -> Evidence:
    """The evidence for each message; a message is given by its first row in the outline."""
    rows = seen.rows
    before = rows.before[chosen]
    kinds, kinds_before = rows.traits[chosen], rows.traits[before]
    has_before = before != NONE
    short_before = has_before & (traits.count_words(kinds_before) < LONG)
    near = np.where(short_before, before, NONE)
    further = np.where(short_before, rows.before[before], NONE)
    further = np.where(traits.count_words(rows.traits[further]) < ESSAY, further, NONE)
    own, earlier = held.masks[chosen], held.masks[near]
    only_earlier = earlier & ~own
    only_further = held.masks[further] & ~(own | earlier)
    session_of = rows.sessions[chosen]
    sessions = _distinct(session_of)
    meaning, meaning_before = _closeness(rows, chosen, near, asked)
    return Evidence(
        words=held.share(own),
        before=held.share(earlier),
        only_before=held.share(only_earlier) + FURTHER * held.share(only_further),
        meaning=meaning,
        meaning_before=meaning_before,
        exact=own & held.exact != 0,
        by_named=_by_named(rows.peers[chosen], kinds, asked),
        oneself=kinds & traits.OF_ONESELF != 0,
        question=kinds & traits.IS_QUESTION != 0,
        after_question=has_before & (kinds_before & traits.ASKS != 0),
        time=(kinds & traits.TELLS_TIME != 0) & asked.asks_when,
        date=np.zeros(len(chosen), dtype=np.float32),
        length=traits.count_words(kinds),
        session=np.searchsorted(sessions, session_of),
        session_words=_session_words(rows, sessions, held),
        session_size=seen.sizes(sessions),
    )


def _fit_dates(tx: Tx, rows: OutlineRows, chosen: Positions, dates: Dates) -> Floats:
    """How well the dates of a question fit the day of each message, or what it says of other days ("last month")."""
    said = dates.fit(rows.days[chosen])
    kinds = rows.traits[chosen]
    read = (kinds & traits.TELLS_TIME != 0) & (traits.count_words(kinds) <= HAPPENED_WORDS)
    telling = rows.ids[chosen[read]].tolist()
    query = select(messages.c.id, messages.c.content, messages.c.created_at).where(messages.c.id.in_(telling))
    happened = np.zeros(len(chosen), dtype=np.float32)
    places = {message: place for place, message in enumerate(rows.ids[chosen].tolist())}
    for message, text, created_at in tx.execute(query):
        happened[places[message]] = dates.fit_times(resolve(text, times.to_day(created_at)))
    fits: Floats = np.maximum(said, happened) + HAPPENED * happened
    return fits


def _by_named(authors: NDArray[np.int32], kinds: NDArray[np.int32], asked: SearchWords) -> Flags:
    """Which messages are by the person that the question means: the one that it names. A question about oneself means
    messages in which somebody speaks of themselves, unless they are as long as an assistant's."""
    meant: Flags = authors == (next(iter(asked.named)) if len(asked.named) == 1 else NONE)
    if asked.of_oneself:
        meant = (kinds & traits.OF_ONESELF != 0) & (traits.count_words(kinds) < LONG)
    return meant


def _closeness(
    rows: OutlineRows, chosen: Positions, before: NDArray[np.int32], asked: SearchWords
) -> tuple[Floats, Floats]:
    """How close each message is, by the closest of its pieces, and how close the row before it is; 0 for NONE."""
    pieces = None if rows.is_dense else rows.last(chosen) - chosen + 1
    if pieces is not None and len(pieces) and pieces.max() > 1:
        starts = np.cumsum(pieces) - pieces
        every = np.arange(pieces.sum()) - np.repeat(starts - chosen, pieces)
    else:
        starts, every = None, chosen
    wanted = np.zeros(len(rows) + 1, dtype=bool)
    wanted[every] = wanted[before] = True  # what comes before a candidate is mostly one itself
    wanted[NONE] = False
    found = wanted.nonzero()[0]
    close = np.zeros(len(rows) + 1, dtype=np.float32)
    close[found] = rows.closeness(found, asked.vector)
    own = close[every]
    return own if starts is None else np.maximum.reduceat(own, starts), close[before]


def _distinct(numbers: Positions) -> Positions:
    """In order, each once."""
    ordered = np.sort(numbers)
    return np.concatenate([ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]])


def _session_words(rows: OutlineRows, sessions: Positions, held: HeldWords) -> Floats:
    """The share of the question's words that each session holds; more when they come again."""
    if len(sessions) < 2:
        return np.zeros(len(sessions))
    counts = np.zeros((len(held.rows), len(sessions)), dtype=np.float32)
    for line, places in zip(counts, held.rows, strict=True):
        where = rows.sessions[places]
        found = np.searchsorted(sessions, where)
        known = found < len(sessions)
        found, where = found[known], where[known]
        line[:] = np.bincount(found[sessions[found] == where], minlength=len(sessions))
    shares: Floats = held.shares @ np.sqrt(np.minimum(counts, REPEATED) / REPEATED)
    return shares
