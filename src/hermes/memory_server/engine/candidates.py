"""From a question to the messages that may answer it (candidates), each with the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.text_index import MessageIds, SearchArea
from hermes.memory_server.engine.allowed import Allowed
from hermes.memory_server.engine.asking import SearchWords
from hermes.memory_server.engine.outline import NONE, OutlineRows, Positions
from hermes.memory_server.engine.outlines import Seen
from hermes.memory_server.engine.words import WordHolders, find_holders
from hermes.ranking import traits
from hermes.ranking.rarity import is_exact, rarity
from hermes.ranking.scoring import ESSAY, LONG, Evidence, Flags, Floats
from hermes.ranking.words import is_pair

BY_WORDS = 250
BY_MEANING = 120
"""How many candidates are taken by their words and by their meaning; half as many within one session or author."""
LOOKED_AT = 5000
"""Up to how many of the closest messages are checked one by one against a filter. If too few of them pass, the filter
is evaluated for all messages instead."""
FURTHER = 0.5
"""A word two messages back counts for this share of what it counts one message back."""
REPEATED = 3
"""A word that a session repeats counts at most so many times."""


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
    near = rows.first(rows.ids[_by_meaning(tx, rows, within, asked, allowed)])
    direct = _distinct(np.concatenate([held.best(BY_WORDS if within is None else BY_WORDS // 2), near]))
    following = _following(rows, direct, place)
    if allowed is not None and len(following):
        following = rows.first(allowed.keep(tx, rows.ids[following]))
    places = _distinct(np.concatenate([direct, following]))
    return Candidates(rows.ids[places], weigh(seen, places, asked, held), held.known, places)


class HeldWords:
    """Which rows hold which words of a question."""

    def __init__(self, rows: OutlineRows, holders: WordHolders, asked: SearchWords, size: int) -> None:
        """`size` is how many messages the words were looked for in."""
        self.words, self.rows = holders.words, holders.rows
        counts = np.array([len(places) for places in self.rows], dtype=np.float32)
        self.weights = rarity(counts, size)
        """How much each word tells, the more the rarer it is."""
        unknown = np.log1p(2 * size + 1) * sum(0.5 if is_pair(w) else 1.0 for w in asked.words if w not in self.words)
        self.known = float(self.weights.sum() / max(self.weights.sum() + unknown, 1e-6))
        """The share of the question's words that anybody uses. A pair of characters may be no word at all."""
        self.held = np.zeros((len(self.words), len(rows) + 1), dtype=bool)
        """A line for each word, a column for each row of the outline. The last column, NONE, is that of no message."""
        for line, places in zip(self.held, self.rows, strict=True):
            line[places] = True
        self.everything = holders.all_of_them
        self.held[:, self.everything] = True

    def best(self, wanted: int) -> Positions:
        """The rows that hold most of what the question says; of equals the newest.

        How often a message holds a word was worth less than nothing where we measured it.
        """
        some = _distinct(np.concatenate([np.zeros(0, dtype=np.int32), *self.rows, self.everything]))
        if len(some) <= wanted:
            return some
        scores = self.weights @ self.held[:, some]
        least = np.partition(scores, -wanted)[-wanted]
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
    short_before = has_before & (kinds_before >> traits.LENGTH_AT < LONG)
    own, earlier = held.held[:, chosen], held.held[:, np.where(short_before, before, NONE)]
    further = np.where(short_before, rows.before[before], NONE)
    further = np.where(rows.traits[further] >> traits.LENGTH_AT < ESSAY, further, NONE)
    known = own | earlier
    weights = held.weights / max(float(held.weights.sum()), 1e-6)
    session_of = rows.sessions[chosen]
    sessions = _distinct(session_of)
    exact = [is_exact(word, len(places)) for word, places in zip(held.words, held.rows, strict=True)]
    meaning, meaning_before = _closeness(rows, chosen, before, short_before, asked)
    return Evidence(
        words=weights @ own,
        before=weights @ earlier,
        only_before=weights @ (earlier & ~own) + FURTHER * (weights @ (held.held[:, further] & ~known)),
        meaning=meaning,
        meaning_before=meaning_before,
        exact=np.logical_or.reduce(own[exact], axis=0),
        by_named=_by_named(rows.peers[chosen], kinds, asked),
        oneself=kinds & traits.OF_ONESELF != 0,
        question=kinds & traits.IS_QUESTION != 0,
        after_question=has_before & (kinds_before & traits.ASKS != 0),
        time=(kinds & traits.TELLS_TIME != 0) & asked.asks_when,
        date=asked.dates.fit(rows.days[chosen]) if asked.dates else np.zeros(len(chosen), dtype=np.float32),
        length=kinds >> traits.LENGTH_AT,
        session=np.searchsorted(sessions, session_of),
        session_words=_session_words(rows, sessions, held, weights),
        session_size=seen.sizes(sessions),
    )


def _by_named(authors: NDArray[np.int32], kinds: NDArray[np.int32], asked: SearchWords) -> Flags:
    """Which messages are by the person that the question means: the one that it names. A question about oneself means
    messages in which somebody speaks of themselves, unless they are as long as an assistant's."""
    meant: Flags = authors == (next(iter(asked.named)) if len(asked.named) == 1 else NONE)
    if asked.of_oneself:
        meant = (kinds & traits.OF_ONESELF != 0) & (kinds >> traits.LENGTH_AT < LONG)
    return meant


def _closeness(
    rows: OutlineRows, chosen: Positions, before: NDArray[np.int32], short_before: Flags, asked: SearchWords
) -> tuple[Floats, Floats]:
    """How close each message is, by the closest of its pieces, and how close the one before it is if that is short."""
    earlier = np.zeros(len(chosen), dtype=np.float32)
    pieces = rows.last(chosen) - chosen + 1
    short = before[short_before]
    if not len(chosen) or pieces.max() == 1:
        every = rows.closeness(np.concatenate([chosen, short]), asked.vector)
        earlier[short_before] = every[len(chosen) :]
        return every[: len(chosen)], earlier
    starts = np.cumsum(pieces) - pieces
    own = rows.closeness(np.arange(pieces.sum()) - np.repeat(starts - chosen, pieces), asked.vector)
    earlier[short_before] = rows.closeness(short, asked.vector)
    return np.maximum.reduceat(own, starts), earlier


def _distinct(numbers: Positions) -> Positions:
    """In order, each once."""
    ordered = np.sort(numbers)
    return np.concatenate([ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]])


def _session_words(rows: OutlineRows, sessions: Positions, held: HeldWords, weights: Floats) -> Floats:
    """The share of the question's words that each session holds; more when they come again."""
    counts = np.zeros((len(weights), len(sessions)), dtype=np.float32)
    if len(sessions) < 2:
        return np.zeros(len(sessions))
    for line, places in zip(counts, held.rows, strict=True):
        where = rows.sessions[places]
        found = np.searchsorted(sessions, where)
        known = found < len(sessions)
        found, where = found[known], where[known]
        line[:] = np.bincount(found[sessions[found] == where], minlength=len(sessions))
    shares: Floats = weights @ np.sqrt(np.minimum(counts, REPEATED) / REPEATED)
    return shares
