"""Find the messages that may answer a question (candidates), each with the evidence for it."""

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
from hermes.memory_server.engine.memory_index import NONE, OutlineRows, Positions, byte_sums
from hermes.memory_server.engine.memory_indexes import Seen
from hermes.memory_server.engine.words import Allowed, SearchWords, WordHolders, find_holders
from hermes.ranking import traits
from hermes.ranking.dates import Dates
from hermes.ranking.relative_times import resolve
from hermes.ranking.scoring import MIN_ESSAY_WORDS, MIN_LONG_WORDS, Evidence, Flags, Floats, is_exact, rarity
from hermes.ranking.words import is_pair

MAX_WORD_CANDIDATES = 250
MAX_MEANING_CANDIDATES = 120
"""The number of candidates chosen by words, and by meaning; half as many within one session or author, except that an
author of most messages gets all by meaning.
"""
MAX_CHECKED_MESSAGES = 5000
"""The number of closest messages that are checked one by one against a filter. If too few pass, the filter is
evaluated for all messages instead.
"""
SECOND_PRECEDING_WEIGHT = 0.5
"""The weight of a word two messages back, relative to a word one message back."""
EVENT_DATE_WEIGHT = 0.25
"""How much better a date fits messages about an event on that day than messages written on that day."""
MAX_EVENT_WORDS = 120
"""Only messages of up to this many words are searched for the time of an event, because the question waits for it."""
MAX_COUNTED_REPEATS = 3
"""How often a word that a session repeats is counted at most."""
Masks = NDArray[Any]
MASKS: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""The number types of masks, by their bits. A mask has one bit per word of the question; there are at most 48."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Messages with the evidence for each, in no particular order."""

    ids: MessageIds
    evidence: Evidence
    known: float
    """The share of the question's words that any message uses."""
    rows: Positions
    """Their rows in the index."""


def find_candidates(tx: Tx, seen: Seen, place: SearchArea, asked: SearchWords, allowed: Allowed | None) -> Candidates:
    """Return the messages of an area that hold the words, are close in meaning, or directly follow one of these."""
    rows = seen.rows
    inside = _inside(rows, place)
    within = None if inside is None else inside.nonzero()[0]
    size = len(rows) if within is None else len(within)
    held = HeldWords(rows, find_holders(tx, seen, place, inside, asked, allowed), asked, size)
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[held.best(MAX_WORD_CANDIDATES if within is None else MAX_WORD_CANDIDATES // 2)] = True
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
    """A table of which rows hold which words of a question. The words of a row are the bits of one number, its mask."""

    def __init__(self, rows: OutlineRows, holders: WordHolders, asked: SearchWords, size: int) -> None:
        """`size` is the number of messages that were searched for the words."""
        self.words, self.rows = holders.words, holders.rows
        counts = np.array([len(places) for places in self.rows], dtype=np.float32)
        weights = rarity(counts, size)  # rare words weigh more
        total = float(weights.sum())
        unknown = np.log1p(2 * size + 1) * sum(0.5 if is_pair(w) else 1.0 for w in asked.words if w not in self.words)
        self.known = float(total / max(total + unknown, 1e-6))
        """The share of the question's words that any message uses. Pairs of characters count half: not all are
        words.
        """
        self.shares = weights / np.float32(max(total, 1e-6))
        """The weight of each word; the weights add up to 1.0."""
        self._sums = byte_sums(self.shares)
        kind = next(kind for bits, kind in MASKS.items() if bits >= len(self.words))
        self.masks = np.zeros(len(rows) + 1, dtype=kind)
        """The mask of each row of the index. The last, NONE, stands for no message."""
        for bit, places in enumerate(self.rows):
            self.masks[places] |= kind(1 << bit)
        self.masks[holders.all_of_them] = kind((1 << len(self.words)) - 1)

    def share(self, masks: Masks) -> Floats:
        """Return the share of the question's words that each of these masks holds."""
        found: Floats = self._sums[0][masks if masks.itemsize == 1 else masks & 255]
        for place in range(1, len(self._sums)):  # a mask may have more bytes than there are words for
            found += self._sums[place][masks >> 8 * place & 255]
        return found

    @property
    def exact(self) -> int:
        """The mask of numbers that must match exactly."""
        held = zip(self.words, self.rows, strict=True)
        return sum(1 << bit for bit, (word, places) in enumerate(held) if is_exact(word, len(places)))

    def best(self, wanted: int) -> Positions:
        """Return the rows that hold the largest share of the question; among equals the newest.

        Counting how often a message holds a word made results worse when we measured it.
        """
        some: Positions = (self.masks[:NONE] != 0).nonzero()[0]
        if len(some) <= wanted:
            return some
        scores = self.share(self.masks[some])
        least = np.sort(scores)[-wanted]  # with so few values faster than a partition
        above = some[scores > least]
        return np.concatenate([above, some[scores == least][len(above) - wanted :]])


def _inside(rows: OutlineRows, place: SearchArea) -> Flags | None:
    """Return which rows are in the area; None for all."""
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
        is_most = within is None or 2 * len(within) > len(rows)
        return rows.nearest(asked.vector, MAX_MEANING_CANDIDATES if is_most else MAX_MEANING_CANDIDATES // 2, within)
    wanted = MAX_MEANING_CANDIDATES
    while allowed.known is None and wanted <= MAX_CHECKED_MESSAGES:
        near = np.unique(rows.ids[rows.nearest(asked.vector, wanted, within)])
        kept = rows.first(allowed.keep(tx, near))
        if len(kept) >= MAX_MEANING_CANDIDATES // 3 or len(near) < wanted // 2:
            return kept
        wanted *= 8
    inside = np.flatnonzero(np.isin(rows.ids, allowed.all(tx)))
    return rows.nearest(
        asked.vector, MAX_MEANING_CANDIDATES, inside if within is None else np.intersect1d(inside, within)
    )


def _following(rows: OutlineRows, chosen: Positions, place: SearchArea) -> Positions:
    """Return the messages of the same area that directly follow these."""
    after = rows.after[rows.last(chosen)]
    after = after[(after != NONE) & (after < len(rows))]
    own: Positions = after if place.peer is None else after[rows.peers[after] == place.peer]
    return own


def weigh(seen: Seen, chosen: Positions, asked: SearchWords, held: HeldWords) -> Evidence:
    """Return the evidence for each message; a message is given by its first row in the index."""
    rows = seen.rows
    before = rows.before[chosen]
    kinds, kinds_before = rows.traits[chosen], rows.traits[before]
    has_before = before != NONE
    short_before = has_before & (traits.count_words(kinds_before) < MIN_LONG_WORDS)
    near = np.where(short_before, before, NONE)
    further = np.where(short_before, rows.before[before], NONE)
    further = np.where(traits.count_words(rows.traits[further]) < MIN_ESSAY_WORDS, further, NONE)
    own, earlier = held.masks[chosen], held.masks[near]
    only_earlier = earlier & ~own
    only_further = held.masks[further] & ~(own | earlier)
    session_of = rows.sessions[chosen]
    sessions = _distinct(session_of)
    meaning, meaning_before = _closeness(rows, chosen, near, asked)
    return Evidence(
        words=held.share(own),
        before=held.share(earlier),
        only_before=held.share(only_earlier) + SECOND_PRECEDING_WEIGHT * held.share(only_further),
        meaning=meaning,
        meaning_before=meaning_before,
        exact=own & held.exact != 0,
        by_named=_by_named(rows.peers[chosen], kinds, asked),
        oneself=kinds & traits.OF_ONESELF != 0,
        question=kinds & traits.IS_QUESTION != 0,
        after_question=has_before & (kinds_before & traits.ASKS != 0),
        time=(kinds & traits.NAMES_TIME != 0) & asked.asks_when,
        date=np.zeros(len(chosen), dtype=np.float32),
        length=traits.count_words(kinds),
        session=np.searchsorted(sessions, session_of),
        session_words=_session_words(rows, sessions, held),
        session_size=seen.sizes(sessions),
    )


def _fit_dates(tx: Tx, rows: OutlineRows, chosen: Positions, dates: Dates) -> Floats:
    """Return how well the question's dates fit the day of each message, or the days that its text names ("last
    month").
    """
    said = dates.fit(rows.days[chosen])
    kinds = rows.traits[chosen]
    read = (kinds & traits.NAMES_TIME != 0) & (traits.count_words(kinds) <= MAX_EVENT_WORDS)
    telling = rows.ids[chosen[read]].tolist()
    query = select(messages.c.id, messages.c.content, messages.c.created_at).where(messages.c.id.in_(telling))
    happened = np.zeros(len(chosen), dtype=np.float32)
    places = {message: place for place, message in enumerate(rows.ids[chosen].tolist())}
    for message, text, created_at in tx.execute(query):
        happened[places[message]] = dates.fit_times(resolve(text, times.to_day(created_at)))
    fits: Floats = np.maximum(said, happened) + EVENT_DATE_WEIGHT * happened
    return fits


def _by_named(authors: NDArray[np.int32], kinds: NDArray[np.int32], asked: SearchWords) -> Flags:
    """Return which messages are by the person that the question is about: the only peer that it names. For a question
    about oneself, these are messages whose authors speak of themselves, unless they are as long as an assistant's.
    """
    meant: Flags = authors == (next(iter(asked.named)) if len(asked.named) == 1 else NONE)
    if asked.of_oneself:
        meant = (kinds & traits.OF_ONESELF != 0) & (traits.count_words(kinds) < MIN_LONG_WORDS)
    return meant


def _closeness(
    rows: OutlineRows, chosen: Positions, before: NDArray[np.int32], asked: SearchWords
) -> tuple[Floats, Floats]:
    """Return the closeness of each message (of its closest piece) and of the row before it; 0 for NONE."""
    pieces = None if rows.is_dense else rows.last(chosen) - chosen + 1
    if pieces is not None and len(pieces) and pieces.max() > 1:
        starts = np.cumsum(pieces) - pieces
        every = np.arange(pieces.sum()) - np.repeat(starts - chosen, pieces)
    else:
        starts, every = None, chosen
    wanted = np.zeros(len(rows) + 1, dtype=bool)
    wanted[every] = wanted[before] = True  # a message before a candidate is usually a candidate too
    wanted[NONE] = False
    found = wanted.nonzero()[0]
    close = np.zeros(len(rows) + 1, dtype=np.float32)
    close[found] = rows.closeness(found, asked.vector)
    own = close[every]
    return own if starts is None else np.maximum.reduceat(own, starts), close[before]


def _distinct(numbers: Positions) -> Positions:
    """Return the sorted distinct numbers."""
    ordered = np.sort(numbers)
    return np.concatenate([ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]])


def _session_words(rows: OutlineRows, sessions: Positions, held: HeldWords) -> Floats:
    """Return the share of the question's words that each session holds; repeated words count more."""
    if len(sessions) < 2:
        return np.zeros(len(sessions))
    counts = np.zeros((len(held.rows), len(sessions)), dtype=np.float32)
    for line, places in zip(counts, held.rows, strict=True):
        where = rows.sessions[places]
        found = np.searchsorted(sessions, where)
        known = found < len(sessions)
        found, where = found[known], where[known]
        line[:] = np.bincount(found[sessions[found] == where], minlength=len(sessions))
    shares: Floats = held.shares @ np.sqrt(np.minimum(counts, MAX_COUNTED_REPEATS) / MAX_COUNTED_REPEATS)
    return shares
