"""How likely it is that memory was told the answer to a question, from what a search found. Pure.

One logistic regression over four features. `python -m bench.admission DATA` fits it, each conversation judged by the
others, and draws the curve of `docs/memory-engine.md`. The numbers come from five conversations of LoCoMo, ten of BEAM
and questions about things that nobody spoke of.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hermes.ranking.scoring import Evidence, Floats
from hermes.ranking.words import SAME, STOP_WORDS

FIRST_HITS = 5
"""The closeness of the best so many hits counts."""
COVERED_HITS, COVERED_CHARS = 3, 1000
"""The words of the beginnings of the best so many hits are compared with those of the question."""
MAX_ASKED = 4
"""In a question with more words that tell something, one that nothing comes close to means little."""
LEAST_COVERED = 0.60
"""How close the words come, on average, plus how close the least close one comes: at least so much where an answer is
near. Chosen on the life of `bench/life_plain.jsonl`; not for questions that name who spoke, for which the regression is
enough."""
WORD = re.compile(r"[^\W\d_]{2,}")
NOT_COVERED = frozenset[str]().union(*STOP_WORDS) | frozenset(
    """
    name names called call what which where when who number time day date year month old long go goes going get got now
    heißt nennt uhr tag alt nombre llama hora día fecha nom appelle heure jour âge
    """.split()  # noqa: SIM905
)
"""Words of a question that its answer does not repeat: they say what kind of value is asked for."""


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


def is_covered(question: str, texts: Sequence[str], direction: Callable[[str], Floats]) -> bool:
    """Return False if no text has words that come close to those of a question: no answer is near, although some of its
    words were spoken. `direction` gives the vector of a word."""
    asked = [word for word in _words(question) if word not in NOT_COVERED]
    if not 0 < len(asked) <= MAX_ASKED:
        return True
    wanted = np.array([direction(word) for word in asked])
    for text in texts:
        if not (held := _words(text)):
            continue
        close = (wanted @ np.array([direction(word) for word in held]).T).max(axis=1)
        forms = {word[:SAME] for word in held}
        close = np.where([word[:SAME] in forms for word in asked], 1.0, close)
        if close.mean() + close.min() >= LEAST_COVERED:
            return True
    return False


def _words(text: str) -> list[str]:
    """Return the words of the beginning of a text, each once."""
    return list(dict.fromkeys(word.lower() for word in WORD.findall(text[:COVERED_CHARS])))


def likelihood(features: AnswerFeatures | None) -> float:
    """Return the probability, from 0 to 1, that the answer was told; 0 if nothing was found."""
    if features is None:
        return 0.0
    weighed = zip(astuple(COEFFICIENTS), astuple(features), strict=True)
    return 1 / (1 + math.exp(-(BIAS + sum(weight * value for weight, value in weighed))))
