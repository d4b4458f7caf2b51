"""How well candidates fit a question: a sum of a dozen kinds of evidence, each with a sign of its own.

The sum does not depend on how many candidates there are, so it also tells how sure an answer is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Wholes = NDArray[np.signedinteger[Any]]
Flags = NDArray[np.bool_]
LONG = 40
"""An answer to a question counts in full up to so many words; a longer message says much else."""
ESSAY = 60
"""Beyond so many words, length counts against a message: it holds many words by chance."""
SMALL_SESSION = 100
"""Beyond so many messages, what a session is about counts less and less for each of them."""
VOTERS = 5
"""The best so many candidates of a session count as its votes."""
FEW = 5
"""A number that at most so many messages hold is taken to be meant exactly."""
ENOUGH = 0.5
"""A finer embedder is used only if it has vectors of at least this share of the best candidates."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What each kind of evidence is worth. None is below zero: the sign is in the formula."""

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
"""The same where a finer embedder was asked. What it says is worth more than what word vectors say, and much that only
stands for meaning (what the session is about, that a question came before) is worth less beside it."""
ESSAY_SHARE = 0.6
"""What is said of essays counts so much as beside a finer embedder, the rest as without: one direction says little of a
long text. Chosen on seven conversations of BEAM; those of LoCoMo and the lives have short messages."""
ABOUT = 0.21
"""A hit with a lower certainty counts as not about the question. Measured: of questions without an answer five in six
find nothing above it, of those with one only one in twenty-five."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Every kind of evidence as an array, with one element for each candidate."""

    words: Floats
    """The share of the question's words that the message holds, rare words counting more."""
    before: Floats
    """The same for the message before it; 0 when that one is long."""
    only_before: Floats
    """The share that only the message before it holds; and, at half the weight, only the one before that."""
    meaning: Floats
    """How close its vector is to the question's; 1.0 is the same direction."""
    meaning_before: Floats
    exact: Flags
    """It holds a number of the question that hardly any other holds."""
    by_named: Flags
    """Its author is the one whom the question names, or asks about as "I"."""
    oneself: Flags
    question: Flags
    after_question: Flags
    time: Flags
    """The question asks when, and it names a time."""
    date: Floats
    length: Wholes
    session: Wholes
    """Which of the sessions it is in, by their number."""
    session_words: Floats
    """The share of the question's words that each session holds."""
    session_size: Wholes
    finer: Floats | float = 0.0
    """By how much it is closer than the average, by a finer embedder; 0 where that has not seen it."""

    def __len__(self) -> int:
        return len(self.words)


def rarity(holders: Floats, size: int) -> Floats:
    """How much each word tells, given how many of `size` messages hold it: the more, the fewer they are."""
    weights: Floats = np.log1p(np.maximum(size - holders + 0.5, 0.5) / (holders + 0.5))
    return weights


def is_exact(word: str, holders: int) -> bool:
    """Is it a number, other than a year, that is meant exactly?"""
    is_year = len(word) == 4 and word[:2] in ("19", "20")
    return holders <= FEW and len(word) > 2 and any(letter.isdigit() for letter in word) and not is_year


def score(found: Evidence, weights: Weights = WEIGHTS) -> Floats:
    """The score of each candidate; below zero it hardly fits."""
    total = weights.words * (found.words + weights.window * found.only_before)
    total += weights.meaning * (found.meaning + weights.meaning_window * found.meaning_before)
    total += weights.finer * found.finer + weights.exact * found.exact
    total += weights.speaker * found.by_named + weights.oneself * (found.by_named & found.oneself)
    total += weights.answer * found.after_question * found.before * (LONG / np.maximum(found.length, LONG))
    total += weights.date * found.date + weights.time * found.time
    total -= weights.question * found.question
    total -= weights.length * np.log(np.maximum(found.length, ESSAY) / ESSAY)
    if len(found.session_size) > 1:
        gate = SMALL_SESSION / np.maximum(found.session_size, SMALL_SESSION)  # what a huge session is about says little
        total += weights.session * (found.session_words * gate)[found.session]
        total += weights.vote * (_votes(total, found) * gate)[found.session]
    return total


def score_finer(found: Evidence, best: Wholes, close: Floats) -> Floats:
    """The scores with the closeness `close` that a finer embedder gives to the candidates `best`. One that it has no
    vector of (NaN) counts as the average. When it has too few of them, its opinion is not used."""
    seen = ~np.isnan(close)
    if not seen.any() or seen.mean() < ENOUGH:
        return score(found)
    usual = float(np.median(found.length[best]))
    return score(with_finer(found, best, close), _blend(min(1.0, max(ESSAY_SHARE, ESSAY / max(usual, 1.0)))))


def _blend(share: float) -> Weights:
    """Return weights of which this share are those beside a finer embedder."""
    pairs = ((field.name, getattr(WEIGHTS, field.name), getattr(FINER, field.name)) for field in fields(Weights))
    return Weights(**{name: plain + share * (finer - plain) for name, plain, finer in pairs})


def with_finer(found: Evidence, best: Wholes, close: Floats) -> Evidence:
    """The evidence with what a finer embedder says of the best candidates, some of which it has seen."""
    seen = ~np.isnan(close)
    finer = np.zeros(len(found), dtype=np.float32)
    finer[best[seen]] = close[seen] - close[seen].mean()
    return replace(found, finer=finer)


def certainty(found: Evidence, known: float) -> Floats:
    """How sure it is that each candidate is about the question, from 0 to 1. `known` is the share of the question's
    words that anybody uses: what nobody ever spoke of has no answer."""
    held = known * (found.words + WEIGHTS.window * found.only_before)
    return np.clip((held + found.meaning) / 2, 0, 1)


def _votes(total: Floats, found: Evidence) -> Floats:
    """For each session, by how much its best candidates are better than the average candidate."""
    if not len(total):
        return np.zeros(0)
    above = total - total.sum() / len(total)
    better = (above > 0).nonzero()[0]
    order = better[np.lexsort((-above[better], found.session[better]))]
    sessions = found.session[order]
    first = np.searchsorted(sessions, sessions)  # where the session of each begins
    voters = np.arange(len(order)) - first < VOTERS
    return np.bincount(sessions[voters], above[order][voters], len(found.session_size)) / VOTERS
