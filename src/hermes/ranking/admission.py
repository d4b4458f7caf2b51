"""The probability that memory holds the answer to a question, from the results of a search. Pure.

One logistic regression over how well the best lines match the question. `python -m bench.admission DATA` fits it,
judging each conversation by the others, and draws the curve of `docs/memory-engine.md`. The numbers come from five
conversations of LoCoMo, ten of BEAM, ten made-up lives in five languages (`bench/told_lives.txt`), and questions about
subjects that nobody mentioned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hermes.ranking.asked_values import asks_value, find_kind, holds_value
from hermes.ranking.dates import asks_when
from hermes.ranking.scoring import Floats
from hermes.ranking.traits import only_asks
from hermes.ranking.words import split_words

MAX_LINES_READ = 6
"""The number of best lines that are read."""
MAX_LINE_CHARS, MAX_LINE_WORDS = 400, 60
MAX_WORDS, MAX_QUESTION_WORDS = 8, 20
MIN_STEM_CHARS, MAX_ENDING_CHARS = 3, 3
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
Direction = Callable[[str], Floats]


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
    held: float
    """The best match, by meaning, of the question's words with a line that has a value of the requested kind."""
    whole: float
    """The match of the best line with the word that it matches least."""
    margin: float
    """The difference between the best match of the named person's lines and that of the others' lines."""
    names_one: float
    of_oneself: float
    typed: float
    """1 if the question asks for a value of a known kind."""
    words: float
    """The number of words that show the subject, scaled to at most 1."""
    words_unnamed: float
    words_held: float
    asked: float
    """The number of words of the question, scaled to at most 1."""
    length: float
    """The logarithm of the length of the best line."""
    particular: float
    """1 if the question asks for particulars."""
    of_kind: float
    """1 if the value asked for has a form of its own: an age, a price, a colour."""
    compared: float
    """1 if the lines have finer vectors and the question does not name one person. If it does, they say nothing: what
    another person said of themselves is as close.
    """
    close: float
    """The closeness of the closest line by finer vectors."""
    close_fitting: float
    """The closeness of the closest line that has a value of the kind asked for."""


COEFFICIENTS = AnswerFeatures(
    known=0.715, by_another=-2.159, held=2.927, whole=0.179, margin=1.512, names_one=0.843, of_oneself=0.565,
    typed=0.214, words=0.348, words_unnamed=0.616, words_held=-1.360, asked=0.976, length=0.243, particular=-1.950,
    of_kind=-0.331, compared=-1.551, close=-1.949, close_fitting=5.845,
)  # fmt: skip
BIAS_WEIGHT = -3.403
KNOWN_THRESHOLD = 0.40
"""A question with a lower probability counts as unanswered by memory. Measured, each conversation by the others: 52 %
of LoCoMo's questions without an answer are below it, 8 % of those with one.
"""


def read_features(asked: AskedWords, lines: Sequence[FoundLine], direction: Direction | None) -> AnswerFeatures | None:
    """Return the features of a search that found these lines, the best first; None without lines."""
    lines = lines[:MAX_LINES_READ]
    if not lines:
        return None
    bare = [word.rstrip("*") for word in asked.words]
    words = ([word for word in bare if word not in GENERIC] or bare)[:MAX_WORDS] or [""]
    texts = [_choose_part(line.text, [word[:MAX_FORM_CHARS] for word in words if word]) for line in lines]
    held = _hold([[*split_words(text)][:MAX_LINE_WORDS] for text in texts], words, direction)
    tells = np.array([not only_asks(text) for text in texts], dtype=float)
    fits = tells * np.array([holds_value(asked.text, text) for text in texts], dtype=float)
    names_one = len(asked.named) == 1
    close = None if names_one else _find_closeness(lines)
    joint, share = held.mean(axis=1), min(len(words), MAX_WORDS) / MAX_WORDS
    best = float((joint * fits).max())
    own = np.array([line.speaker in asked.named for line in lines], dtype=float)
    margin = float((joint * own).max() - (joint * (1 - own)).max()) if names_one else 0.0
    return AnswerFeatures(
        known=asked.known,
        by_another=float(asked.by_another),
        held=best,
        whole=float((held.min(axis=1) * tells).max()),
        margin=margin,
        names_one=float(names_one),
        of_oneself=float(asked.of_oneself),
        typed=float(asks_value(asked.text)),
        words=share,
        words_unnamed=0.0 if names_one else share,
        words_held=share * best,
        asked=min(len(asked.text.split()), MAX_QUESTION_WORDS) / MAX_QUESTION_WORDS,
        length=math.log1p(len(split_words(texts[0]))),
        particular=float(PARTICULARS.search(asked.text) is not None),
        of_kind=float(find_kind(asked.text) is not None),
        compared=float(close is not None),
        close=0.0 if close is None else float(close.max()),
        close_fitting=0.0 if close is None else float((close * fits).max()),
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


def _hold(lines: Sequence[Sequence[str]], words: Sequence[str], direction: Direction | None) -> Floats:
    """Return how well each line matches each word, from 0 to 1: by a form of the word, or by the closest word in
    meaning.
    """
    every = {word: place for place, word in enumerate(dict.fromkeys(word for line in lines for word in line))}
    close = np.zeros((len(every) + 1, len(words)), dtype=np.float32)
    if direction is not None and every:
        close[:-1] = np.array([direction(word) for word in every]) @ np.array([direction(word) for word in words]).T
    for at, word in enumerate(words):
        begin = word[:MIN_STEM_CHARS]
        close[
            [place for other, place in every.items() if other[:MIN_STEM_CHARS] == begin and is_form(word, other)], at
        ] = 1
    found: Floats = np.array([close[[*(every[word] for word in line), -1]].max(axis=0) for line in lines])
    return found


def is_form(one: str, other: str) -> bool:
    """Return True if two words differ only in their ending."""
    if one == other or one.isdigit() or other.isdigit():
        return one == other
    shorter, longer = sorted((one, other), key=len)
    is_long = len(shorter) >= MIN_STEM_CHARS and len(longer) - len(shorter) <= MAX_ENDING_CHARS
    return is_long and longer.startswith(shorter[: max(MIN_STEM_CHARS, len(shorter) - 1)])
