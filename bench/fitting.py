"""Weights fitted to questions whose answers are known: those that make the answers most likely among all candidates.

The fit starts where every kind of evidence is worth the same on average, and knows nothing of the weights that ship.
No weight goes below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hermes.ranking.scoring import Evidence, Flags, Weights, score

Array = NDArray[np.floating[Any]]
NOTHING = Weights(**{field.name: 0.0 for field in fields(Weights)})
WITHIN = {"window": "words", "meaning_window": "meaning"}
"""Weights that are shares of other weights."""
KINDS = tuple(field.name for field in fields(Weights))
ROUND_COUNT = 80
STEP_SIZE = 0.12
HOLD_FACTOR = 0.003
"""How strongly a weight is held at its start, where it stays without evidence in the questions."""
MIN_DEVIATION = 0.05
"""Evidence that varies less than this is too rare to get a large weight."""
FASTER, SLOWER = 0.9, 0.95
Case = tuple[Evidence, Flags]
"""The candidates of a question, and which of them answer it."""


def fit(cases: Sequence[Case]) -> Weights:
    """Return the weights that fit these questions."""
    known = [case for case in cases if case[1].any() and not case[1].all()]
    parts = [np.stack([_part(found, name) for name in KINDS], axis=1) for found, _ in known]
    answers = [answer for _, answer in known]
    first = _as_weights(_climb(parts, answers))
    place = KINDS.index("vote")
    for (found, _), part in zip(known, parts, strict=True):  # who votes for a session is known only now
        part[:, place] = score(found, replace(first, vote=1.0)) - score(found, replace(first, vote=0.0))
    return _as_weights(_climb(parts, answers))


def _part(found: Evidence, name: str) -> Array:
    """Return what one kind of evidence adds to each candidate at weight 1."""
    if name == "vote":
        return np.zeros(len(found))
    if (whole := WITHIN.get(name)) is None:
        return score(found, replace(NOTHING, **{name: 1.0}))
    alone = replace(NOTHING, **{whole: 1.0})
    return score(found, replace(alone, **{name: 1.0})) - score(found, alone)


def _as_weights(values: Array) -> Weights:
    given = dict(zip(KINDS, values.tolist(), strict=True))
    for name, whole in WITHIN.items():
        given[name] /= max(given[whole], 1e-6)
    return Weights(**given)


def _climb(parts: Sequence[Array], answers: Sequence[Flags]) -> Array:
    """Maximise the likelihood of the answers with Adam."""
    spread = np.sqrt(np.mean([part.var(axis=0) for part in parts], axis=0))
    scale = 1 / np.maximum(spread, MIN_DEVIATION)
    start = np.full(len(scale), 0.35)
    values, mean, square = start.copy(), np.zeros(len(scale)), np.zeros(len(scale))
    for turn in range(1, ROUND_COUNT + 1):
        pull = np.mean(
            [_pull(part, answer, values * scale) for part, answer in zip(parts, answers, strict=True)], axis=0
        )
        slope = HOLD_FACTOR * (values - start) - pull * scale
        mean = FASTER * mean + (1 - FASTER) * slope
        square = SLOWER * square + (1 - SLOWER) * slope**2
        steady = np.sqrt(square / (1 - SLOWER**turn)) + 1e-7
        values = np.maximum(values - STEP_SIZE * (1 - turn / (ROUND_COUNT + 1)) * mean / (1 - FASTER**turn) / steady, 0)
    fitted: Array = values * scale
    return fitted


def _pull(part: Array, answer: Flags, weights: Array) -> Array:
    """Return the gradient of one question: evidence of the answers less that of the wrong candidates."""
    scores = part @ weights
    odds = np.exp(scores - scores.max())
    wrong = np.where(answer, 0.0, odds)
    missed = wrong.sum() / (odds[answer] + wrong.sum() + 1e-30) / answer.sum()
    pull: Array = missed @ part[answer] - missed.sum() * (wrong @ part) / (wrong.sum() + 1e-30)
    return pull
