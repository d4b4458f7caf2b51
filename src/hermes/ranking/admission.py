"""How likely it is that memory was told the answer to a question, from what a search found. Pure.

One logistic regression over four features. `python -m bench.admission DATA` fits it, each conversation judged by the
others, and draws the curve of `docs/memory-engine.md`. The numbers come from five conversations of LoCoMo, ten of BEAM
and questions about things that nobody spoke of.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import numpy as np

from hermes.ranking.scoring import Evidence, Floats

FIRST_HITS = 5
"""The closeness of the best so many hits counts."""


@dataclass(frozen=True, slots=True)
class AnswerFeatures:
    """What a search tells about whether there is an answer."""

    known: float
    """The share of the question's words that anybody uses."""
    by_another: float
    """1 if the question names one person and the best hit is somebody else's, else 0."""
    meaning: float
    """How close the closest of the best hits is to the question."""
    score: float
    """The score of the best hit."""


COEFFICIENTS = AnswerFeatures(known=3.541, by_another=-3.061, meaning=0.186, score=0.07)
BIAS = -2.539
LEAST_LIKELY = 0.40
"""A question whose answer is less likely than this counts as one that memory was not told the answer to. Measured, each
conversation by the others: 48 % of LoCoMo's questions without an answer are below it, 6 % of those with one."""


def read_features(found: Evidence, scores: Floats, known: float, *, names_one: bool) -> AnswerFeatures | None:
    """Return the features of a search with these candidates; None if there are none."""
    if not len(found):
        return None
    first = np.argsort(-scores, kind="stable")[:FIRST_HITS]
    by_another = names_one and not bool(found.by_named[first[0]])
    return AnswerFeatures(known, float(by_another), float(found.meaning[first].max()), float(scores[first[0]]))


def likelihood(features: AnswerFeatures | None) -> float:
    """Return the probability, from 0 to 1, that the answer was told; 0 if nothing was found."""
    if features is None:
        return 0.0
    weighed = zip(astuple(COEFFICIENTS), astuple(features), strict=True)
    return 1 / (1 + math.exp(-(BIAS + sum(weight * value for weight, value in weighed))))
