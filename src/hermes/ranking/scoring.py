"""Scores of candidates for a question: a signed, weighted sum of a dozen kinds of evidence.

The sum does not depend on the number of candidates, so it also shows how certain an answer is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Wholes = NDArray[np.signedinteger[Any]]
Flags = NDArray[np.bool_]
MIN_LONG_WORDS = 40
"""An answer of up to this length counts in full; a longer message covers other subjects too."""
MIN_ESSAY_WORDS = 60
"""Beyond this length a message is penalised, because it contains many words by chance."""
MAX_SMALL_SESSION_MESSAGES = 100
"""Beyond this size, the subject of a session counts less and less for each of its messages."""
MAX_VOTERS = 5
"""The number of best candidates of a session that count as its votes."""
MAX_EXACT_HOLDERS = 5
"""A number that at most this many messages contain must match exactly."""
MIN_FINER_SHARE = 0.5
"""The second embedder is used only if it has vectors of at least this share of the best candidates."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each kind of evidence. None is negative: the sign is in the formula."""

    words: float = 9.0
    window: float = 0.4
    meaning: float = 7.0
    meaning_window: float = 0.4
    finer: float = 0.0
    exact: float = 4.0
    speaker: float = 1.0
    oneself: float = 1.0
    answer: float = 5.0
    session: float = 4.0
    vote: float = 0.6
    date: float = 4.0
    time: float = 1.5
    question: float = 0.8
    length: float = 1.2


WEIGHTS = Weights()
FINER = Weights(
    words=4.5,
    window=0.5,
    meaning=1.0,
    meaning_window=1.3,
    finer=22.0,
    exact=6.0,
    speaker=3.0,
    oneself=1.5,
    answer=3.5,
    session=1.0,
    vote=0.07,
    date=3.0,
    question=2.0,
    time=4.0,
)
"""The weights with the second embedder. It counts more than word vectors, and evidence that only stands in for meaning
(the subject of the session, a preceding question) counts less.
"""
UNNAMED_EXTRA_SHARE = 0.4
"""How much more the second embedder counts, among short messages, for a question that names no peer: who is meant is
then part of its meaning. Chosen on three lives and `bench/told_lives.txt`; LoCoMo's questions name a peer.
"""
ESSAY_SHARE = 0.6
"""The share of `FINER` weights for long messages, with `WEIGHTS` for the rest: one vector says little about a long
text. Chosen on seven conversations of BEAM; those of LoCoMo and the lives have short messages.
"""
RELEVANCE_THRESHOLD = 0.21
"""A hit with lower certainty does not count as relevant. Measured: of questions without an answer five in six find
nothing above it, of those with one only one in twenty-five.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of all candidates: each kind is an array with one element per candidate."""

    words: Floats
    """The share of the question's words that the message holds; rare words count more."""
    before: Floats
    """The same for the preceding message; 0 if that is long."""
    only_before: Floats
    """The share that only the preceding message holds, plus, at half the weight, what only the one before that
    holds.
    """
    meaning: Floats
    """The closeness of the message's vector to the question's; 1.0 is the same direction."""
    meaning_before: Floats
    exact: Flags
    """True if the message holds a number of the question that hardly any other holds."""
    by_named: Flags
    """True if the author is the person whom the question names, or asks about as "I"."""
    oneself: Flags
    question: Flags
    after_question: Flags
    time: Flags
    """True if the question asks when, and the message names a time."""
    date: Floats
    length: Wholes
    session: Wholes
    """The number of its session."""
    session_words: Floats
    """The share of the question's words that each session holds."""
    session_size: Wholes
    finer: Floats | float = 0.0
    """The closeness by the second embedder, minus the average; 0 without a vector."""

    def __len__(self) -> int:
        return len(self.words)


def rarity(holders: Floats, size: int) -> Floats:
    """Return the weight of each word, given how many of `size` messages hold it: rare words weigh more."""
    weights: Floats = np.log1p(np.maximum(size - holders + 0.5, 0.5) / (holders + 0.5))
    return weights


def is_exact(word: str, holders: int) -> bool:
    """Return True for a number, other than a year, that must match exactly."""
    is_year = len(word) == 4 and word[:2] in ("19", "20")
    return holders <= MAX_EXACT_HOLDERS and len(word) > 2 and any(letter.isdigit() for letter in word) and not is_year


def score(found: Evidence, weights: Weights = WEIGHTS) -> Floats:
    """Return the score of each candidate; below zero it hardly fits."""
    total = weights.words * (found.words + weights.window * found.only_before)
    total += weights.meaning * (found.meaning + weights.meaning_window * found.meaning_before)
    total += weights.finer * found.finer + weights.exact * found.exact
    total += weights.speaker * found.by_named + weights.oneself * (found.by_named & found.oneself)
    total += (
        weights.answer
        * found.after_question
        * found.before
        * (MIN_LONG_WORDS / np.maximum(found.length, MIN_LONG_WORDS))
    )
    total += weights.date * found.date + weights.time * found.time
    total -= weights.question * found.question
    total -= weights.length * np.log(np.maximum(found.length, MIN_ESSAY_WORDS) / MIN_ESSAY_WORDS)
    if len(found.session_size) > 1:
        gate = MAX_SMALL_SESSION_MESSAGES / np.maximum(
            found.session_size, MAX_SMALL_SESSION_MESSAGES
        )  # the subject of a huge session says little
        total += weights.session * (found.session_words * gate)[found.session]
        total += weights.vote * (_votes(total, found) * gate)[found.session]
    return total


def score_finer(found: Evidence, best: Wholes, close: Floats, *, names_one: bool = True) -> Floats:
    """Return the scores with the second embedder's closeness `close` of the candidates `best`. A candidate without a
    vector (NaN) counts as average. If too many lack one, the second embedder is not used. `names_one` tells that the
    question names a peer.
    """
    seen = ~np.isnan(close)
    if not seen.any() or seen.mean() < MIN_FINER_SHARE:
        return score(found)
    usual = float(np.median(found.length[best]))
    share = min(1.0, max(ESSAY_SHARE, MIN_ESSAY_WORDS / max(usual, 1.0)))
    weights = _blend(share)
    if not names_one:
        short = (share - ESSAY_SHARE) / (1 - ESSAY_SHARE)
        weights = replace(weights, finer=weights.finer * (1 + UNNAMED_EXTRA_SHARE * short))
    return score(with_finer(found, best, close), weights)


def _blend(share: float) -> Weights:
    """Return a blend of weights: this share of `FINER`, the rest of `WEIGHTS`."""
    pairs = ((field.name, getattr(WEIGHTS, field.name), getattr(FINER, field.name)) for field in fields(Weights))
    return Weights(**{name: plain + share * (finer - plain) for name, plain, finer in pairs})


def with_finer(found: Evidence, best: Wholes, close: Floats) -> Evidence:
    """Return the evidence with the second embedder's closeness of the best candidates that have a vector."""
    seen = ~np.isnan(close)
    finer = np.zeros(len(found), dtype=np.float32)
    finer[best[seen]] = close[seen] - close[seen].mean()
    return replace(found, finer=finer)


def certainty(found: Evidence, known: float) -> Floats:
    """Return how certain it is that each candidate is about the question, from 0 to 1. `known` is the share of the
    question's words that any message holds: subjects that nobody mentioned have no answer.
    """
    held = known * (found.words + WEIGHTS.window * found.only_before)
    return np.clip((held + found.meaning) / 2, 0, 1)


def _votes(total: Floats, found: Evidence) -> Floats:
    """Return for each session how much its best candidates exceed the average candidate."""
    if not len(total):
        return np.zeros(0)
    above = total - total.sum() / len(total)
    better = (above > 0).nonzero()[0]
    order = better[np.lexsort((-above[better], found.session[better]))]
    sessions = found.session[order]
    first = np.searchsorted(sessions, sessions)  # the first position of each one's session
    voters = np.arange(len(order)) - first < MAX_VOTERS
    return np.bincount(sessions[voters], above[order][voters], len(found.session_size)) / MAX_VOTERS
