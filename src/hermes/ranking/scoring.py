"""How well candidates fit a question: a sum of a dozen kinds of evidence, each with a sign of its own.

The sum does not depend on how many candidates there are, so it also tells how sure an answer is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Wholes = NDArray[np.signedinteger[Any]]
Flags = NDArray[np.bool_]
LONG = 40
"""Words from which on a message says more than the answer to it is about."""
ESSAY = 60
"""Words from which on length counts against a message: it holds many words, and is about few."""
SMALL_SESSION = 100
"""Messages up to which a session is about something; what a larger one is about says less."""
VOTERS = 5
"""How many of its messages speak for a session."""
ENOUGH = 0.5
"""The share of the best candidates that a finer embedder must have seen before it is listened to."""


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
    window=0.7,
    meaning=2.0,
    finer=15.0,
    exact=6.0,
    speaker=0.9,
    oneself=2.0,
    answer=4.0,
    session=3.2,
    vote=0.15,
    date=7.0,
    time=3.5,
    question=1.6,
)
"""The same where a finer embedder was asked. What it says is worth more than what word vectors say, and much that only
stands for meaning (what the session is about, that a question came before) is worth less beside it."""
ABOUT = 0.21
"""What is less sure is not about the question: of questions that nothing answers five in six find nothing as sure, of
those that have an answer one in twenty-five."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for each of the candidates, by their number."""

    words: Floats
    """The share of the question's words, by their rarity, that it holds."""
    before: Floats
    """The same of the message before it; 0 when that is long."""
    only_before: Floats
    """The share that the message before holds and it does not; also, for less, what only the one before that holds."""
    meaning: Floats
    """How close it is to the question, 1.0 being the same."""
    meaning_before: Floats
    exact: Flags
    """It holds a number of the question that hardly any other holds."""
    by_named: Flags
    """Its author is the only one that the question names, or who asks about themselves."""
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
    """By how much it is closer than others are, as far as a finer embedder has looked."""

    def __len__(self) -> int:
        return len(self.words)


def score(found: Evidence, weights: Weights = WEIGHTS) -> Floats:
    """How well each candidate fits; what is below zero hardly does."""
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


def score_finer(found: Evidence, best: Wholes, close: Floats, weights: Weights = FINER) -> Floats:
    """The scores when an embedder that understands more has said how close the best candidates are. Of one that it has
    not seen (NaN) nothing is known, so it counts as they do on average; when it has seen too few of them, the scores
    are those without it."""
    seen = ~np.isnan(close)
    if not seen.any() or seen.mean() < ENOUGH:
        return score(found)
    return score(with_finer(found, best, close), weights)


def with_finer(found: Evidence, best: Wholes, close: Floats) -> Evidence:
    """The evidence with what a finer embedder says of the best candidates, some of which it has seen."""
    seen = ~np.isnan(close)
    finer = np.zeros(len(found), dtype=np.float32)
    finer[best[seen]] = close[seen] - close[seen].mean()
    return replace(found, finer=finer)


def certainty(found: Evidence, known: float, weights: Weights = WEIGHTS) -> Floats:
    """How sure it is that each candidate is about the question, from 0 to 1. `known` is the share of the question's
    words that anybody uses: what nobody ever spoke of has no answer."""
    held = known * (found.words + weights.window * found.only_before)
    return np.clip((held + found.meaning) / 2, 0, 1)


def _votes(total: Floats, found: Evidence) -> Floats:
    """For each session, by how much its best candidates are better than candidates are."""
    if not len(total):
        return np.zeros(0)
    above = np.maximum(total - total.sum() / len(total), 0)
    order = np.lexsort((-above, found.session))
    sessions = found.session[order]
    first = np.searchsorted(sessions, sessions)  # where the session of each begins
    voters = np.arange(len(order)) - first < VOTERS
    return np.bincount(sessions[voters], above[order][voters], len(found.session_size)) / VOTERS
