"""The probability that memory holds the answer to a question, from the results of a search. Pure.

One logistic regression over how well the best lines match the question. `python -m bench.admission DATA` fits it,
judging each conversation by the others, and draws the curve of `docs/memory-engine.md`. The numbers come from five
conversations of LoCoMo, ten of BEAM, sixteen made-up lives in five languages (`bench/told_lives.txt`), once more
without capitals, the three lives of `bench.life`, and questions about subjects that nobody mentioned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hermes.ranking.asked_values import asks_thing, asks_value, find_kind, holds_value, writes_small
from hermes.ranking.dates import asks_when
from hermes.ranking.nearness import Direction, find_names, match_words, measure_nearness
from hermes.ranking.scoring import Floats
from hermes.ranking.traits import only_asks
from hermes.ranking.words import split_words

MAX_LINES_READ = 6
"""The number of best lines that are read."""
MAX_LINE_CHARS = 400
MAX_WORDS, MAX_QUESTION_WORDS = 8, 20
GENERIC = frozenset(
    """
    name names called call time day date number many much old long often kind type sort first last now currently current
    year month people person thing things anything something anyone someone anybody somebody any some
    does did has have had get got make makes do go went want like
    heißt irgendwas etwas jemand namen uhrzeit tag datum nummer viel viele alt lange jahr monat
    llama algo alguien nombre hora día fecha número mucho año mes
    appelle quelque chose quelqu nom heure jour date numéro combien âge année mois
    """.split()  # noqa: SIM905 - one word a line would be a page
)
"""Words of a question that name the kind of value asked for, not its subject."""
PARTICULARS = re.compile(
    r"\b(?:specific(?:ally)?|particular|exact(?:ly)?|details?|criteria|rationale|agenda|techniques?|topics?|themes?"
    r"|key points|qualifications?|curriculum|modules?|genau\w{0,4}|konkret\w{0,3}|einzelheit\w{0,3}|específic\w{1,6}"
    r"|concret\w{1,6}|exactamente|précis\w{0,6}|exactement|détails?)\b|具体|细节",
    re.IGNORECASE,
)
"""Matches questions for the particulars of something that may only have been mentioned."""
MAX_SEARCHED_CHARS, MAX_PLACES, MAX_FORM_CHARS = 4000, 6, 5
"""Of a long text the part with most of the question's words is read, found by their first letters."""


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line that a search found, its speaker, and its closeness to the question by finer vectors, if it has one."""

    text: str
    speaker: int
    closeness: float | None = None


@dataclass(frozen=True, slots=True)
class AskedWords:
    """A question: its whole text, the words that show its subject, and the people that it is about."""

    text: str
    words: Sequence[str]
    known: float
    """The share of the words that any message holds."""
    named: frozenset[int]
    """The people that the question names."""
    of_oneself: bool
    by_another: bool = False
    """True if the question names one person, and the best match is by somebody else."""


@dataclass(frozen=True, slots=True)
class AnswerFeatures:
    """The features of a search from which the probability of an answer is computed."""

    known: float
    by_another: float
    """1 if the question names one person and the best line is by somebody else, else 0."""
    margin: float
    """The difference between the best match of the named person's lines and that of the others' lines."""
    names_one: float
    of_oneself: float
    typed: float
    """1 if the question asks for a value of a known kind."""
    of_kind: float
    """1 if the value asked for can be recognised by its form: an age, a price, a colour."""
    of_thing: float
    """1 if the name of something is asked for: of a school, a bank, a brand."""
    particular: float
    """1 if the question asks for particulars."""
    asked: float
    """The number of words of the question, scaled to at most 1."""
    length: float
    """The logarithm of the length of the best line."""
    is_small: float
    """1 if the lines are written without capitals, so that names are not seen."""
    forms: float
    """The largest share of the question's words of which one line has a form."""
    near: float
    """The best match of the question's words near to one value of the kind asked for."""
    near_alone: float
    """The same if the question has no words but names."""
    with_name: float
    """1 if the question writes a word with a capital."""
    attribute: float
    """The best match of what is asked of these names: of the other words, with a line that has the names and a value;
    0 if the question names one person, as conversations of two do.
    """
    first_fits: float
    """1 if the first line has a value of the kind asked for."""
    finer: float
    """1 if the lines have finer vectors."""
    compared: float
    """1 if they have, and the question does not name one person. If it does, they say nothing: what another person
    said of themselves is as close.
    """
    close_fitting: float
    """The closeness, by finer vectors, of the closest line that has a value of the kind asked for."""


COEFFICIENTS = AnswerFeatures(
    known=1.072, by_another=-1.893, margin=1.614, names_one=1.715, of_oneself=0.490, typed=0.274, of_kind=-0.278,
    of_thing=-1.526, particular=-1.698, asked=1.318, length=0.395, is_small=-0.171, forms=-1.203, near=1.409,
    near_alone=2.639, with_name=-0.460, attribute=1.550, first_fits=0.779, finer=-0.246, compared=-1.067,
    close_fitting=2.953,
)  # fmt: skip
BIAS_WEIGHT = -4.242
KNOWN_THRESHOLD = 0.33
"""A question with a lower probability counts as unanswered by memory. Measured, each conversation by the others: 46 %
of LoCoMo's questions without an answer are below it, 8 % of those with one; of lives, 73 and 20 %.
"""


def read_features(asked: AskedWords, lines: Sequence[FoundLine], direction: Direction | None) -> AnswerFeatures | None:
    """Return the features of a search that found these lines, the best first; None without lines."""
    lines = lines[:MAX_LINES_READ]
    if not lines:
        return None
    bare = [word.rstrip("*") for word in asked.words]
    words = ([word for word in bare if word not in GENERIC] or bare)[:MAX_WORDS] or [""]
    texts = [_choose_part(line.text, [word[:MAX_FORM_CHARS] for word in words if word]) for line in lines]
    is_small, names_one = writes_small(texts), len(asked.named) == 1
    tells = np.array([not only_asks(text) for text in texts], dtype=float)
    fits = tells * np.array([holds_value(asked.text, text, is_small=is_small) for text in texts], dtype=float)
    matched = match_words(texts, words, direction)
    each, names = matched.hold(), find_names(asked.text, words)
    joint, near = each.mean(axis=1), measure_nearness(asked.text, texts, tells, matched)
    of_names = each[:, names].min(axis=1, initial=1.0)
    is_attribute = not names_one and not names.all()
    own = np.array([line.speaker in asked.named for line in lines], dtype=float)
    close = _find_closeness(lines)
    is_compared = close is not None and not names_one
    return AnswerFeatures(
        known=asked.known,
        by_another=float(asked.by_another),
        margin=float((joint * own).max() - (joint * (1 - own)).max()) if names_one else 0.0,
        names_one=float(names_one),
        of_oneself=float(asked.of_oneself),
        typed=float(asks_value(asked.text)),
        of_kind=float(find_kind(asked.text) is not None),
        of_thing=float(asks_thing(asked.text)),
        particular=float(PARTICULARS.search(asked.text) is not None),
        asked=min(len(asked.text.split()), MAX_QUESTION_WORDS) / MAX_QUESTION_WORDS,
        length=math.log1p(len(split_words(texts[0]))),
        is_small=float(is_small),
        forms=float(((each >= 1).mean(axis=1) * tells).max()),
        near=near,
        near_alone=near if names.all() else 0.0,
        with_name=float(names.any()),
        attribute=float((each[:, ~names].mean(axis=1) * of_names * fits).max()) if is_attribute else 0.0,
        first_fits=float(fits[0]),
        finer=float(close is not None),
        compared=float(is_compared),
        close_fitting=float((close * fits).max()) if close is not None and is_compared else 0.0,
    )


def _find_closeness(lines: Sequence[FoundLine]) -> Floats | None:
    """Return the closeness of each line, for those without a vector the average; None if no line has one."""
    known = [line.closeness for line in lines if line.closeness is not None]
    if not known:
        return None
    average = sum(known) / len(known)
    return np.array([average if line.closeness is None else line.closeness for line in lines])


def likelihood(features: AnswerFeatures | None) -> float:
    """Return the probability, from 0 to 1, that memory holds the answer; 0 if nothing was found."""
    if features is None:
        return 0.0
    weighed = zip(astuple(COEFFICIENTS), astuple(features), strict=True)
    return 1 / (1 + math.exp(-(BIAS_WEIGHT + sum(weight * value for weight, value in weighed))))


def _choose_part(text: str, forms: Sequence[str]) -> str:
    """Return the part of a long text that holds most of these beginnings of words."""
    if len(text) <= MAX_LINE_CHARS:
        return text
    small, places = text[:MAX_SEARCHED_CHARS].lower(), list[tuple[int, str]]()
    for form in forms:
        at = small.find(form)
        for _ in range(MAX_PLACES):
            if at < 0:
                break
            places.append((at, form))
            at = small.find(form, at + len(form))
    places.sort()
    margin = MAX_LINE_CHARS // 6
    ends = [at + MAX_LINE_CHARS - margin for at, _ in places]
    held = [len({form for at, form in places[first:] if at < end}) for first, end in enumerate(ends)]
    start = max(0, places[held.index(max(held))][0] - margin) if held else 0
    return text[start : start + MAX_LINE_CHARS]


def lacks_value(question: str, text: str) -> bool:
    """Return True if a question asks for a value other than a time, and the text has none of its kind. When something
    was may be the day of a message, so a text without a time can answer that.
    """
    return not asks_when(question) and not holds_value(question, text)
