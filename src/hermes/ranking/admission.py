"""The probability that memory holds the answer to a question, from the results of a search. Pure.

One logistic regression over how well the best lines match the question. `python -m bench.admission DATA` fits it,
judging each conversation by the others, and draws the curve of `docs/memory-engine.md`. The numbers come from five
conversations of LoCoMo, two lives told in 300 messages each, and questions about subjects that nobody mentioned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hermes.ranking.dates import asks_when
from hermes.ranking.scoring import Floats
from hermes.ranking.successors import ASKS_NAME, ASKS_NUMBER, holds_wanted
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
VALUES_ASKED = (
    (
        re.compile(r"\bcolou?rs?\b|\bfarbe\b|\bcouleur\b|颜色", re.IGNORECASE),
        re.compile(
            r"\b(?:red|blue|green|yellow|black|white|brown|gr[ae]y|pink|purple|orange|teal|navy|beige|silver|golden|violet"
            r"|turquoise|cream|blonde?|rot\w*|blau\w*|grün\w*|gelb\w*|schwarz\w*|weiß\w*|rojo|azul|verde|negro|blanco|rouge"
            r"|bleue?|verte?|noire?|blanche?)\b|[红蓝绿黄黑白灰粉紫]",
            re.IGNORECASE,
        ),
    ),
    (
        re.compile(
            r"\bwhat (?:time|hours?)\b|\bworking hours\b|\bum wie viel uhr\b|\bqué hora\b|\bquelle heure\b", re.I
        ),
        re.compile(
            r"\b\d{1,2}(?::\d\d)? ?(?:am|pm|a\.m|p\.m|o['’]clock|h\b|uhr)"
            r"|\b(?:at|from|till?|until|by|to|about|around|um|a las|à) (?:\d{1,2}\b|one|two|three|four|five|six|seven"
            r"|eight|nine|ten|eleven|twelve|noon|midnight)|\d:\d\d"
            r"|\bnoon\b|\bmidnight\b|\bhalf past\b",
            re.IGNORECASE,
        ),
    ),
    (
        re.compile(
            r"\bhow much\b.{0,80}\b(?:cost|pay|paid|charge|earn|spend|spent|make|rent)\b"
            r"|\bwhat\b.{0,80}\b(?:cost|price|salary|rent|wage|charge|pay)\b|\bwie ?viel kostet\b"
            r"|\bcuánto (?:cuesta|pag\w+)\b|\bcombien (?:coûte|pai\w+)\b",
            re.IGNORECASE,
        ),
        re.compile(
            r"[$€£¥]\s?\d|\d[\d,.]{0,12} ?(?:k\b|€|£|dollars|euros?|pounds|bucks|quid|francs|thousand|grand"
            r"|an hour|元|块)|\d{3}",
            re.IGNORECASE,
        ),
    ),
    (
        re.compile(r"\bnumber\b(?! of)|\bplate\b|\bpin\b|\bcode\b|nummer\b|\bnúmero\b|\bnuméro\b|号码", re.IGNORECASE),
        re.compile(r"\d{3}|\d[\d -]{4}"),
    ),
)
"""Kinds of values: the pattern of a question for one, and the pattern of the value."""
MEASURED = re.compile(r"\bhow (?:old|tall|big|far|long)\b|\bwie (?:alt|groß|lange?|weit)\b|\bquel âge\b", re.IGNORECASE)
NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|thousand"
    r"|once|twice|dozen|both|pair|couple|ein|eine|zwei|drei|vier|fünf|dos|tres|cuatro|deux|trois|quatre)\b"
    r"|[一二三四五六七八九十百千万两]",
    re.IGNORECASE,
)
Direction = Callable[[str], Floats]


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line that a search found, and its speaker."""

    text: str
    speaker: int


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


COEFFICIENTS = AnswerFeatures(
    known=1.250, by_another=-2.210, held=3.385, whole=1.008, margin=1.440, names_one=1.625, of_oneself=1.459,
    typed=0.367, words=2.423, words_unnamed=3.810, words_held=-3.668, asked=0.950, length=0.475,
)  # fmt: skip
BIAS_WEIGHT = -6.417
KNOWN_THRESHOLD = 0.42
"""A question with a lower probability counts as unanswered by memory. Measured, each conversation by the others: 51 %
of LoCoMo's questions without an answer are below it, 7 % of those with one.
"""


def read_features(asked: AskedWords, lines: Sequence[FoundLine], direction: Direction | None) -> AnswerFeatures | None:
    """Return the features of a search that found these lines, the best first; None without lines."""
    lines = lines[:MAX_LINES_READ]
    if not lines:
        return None
    bare = [word.rstrip("*") for word in asked.words]
    words = ([word for word in bare if word not in GENERIC] or bare)[:MAX_WORDS] or [""]
    held = _hold([[*split_words(line.text[:MAX_LINE_CHARS])][:MAX_LINE_WORDS] for line in lines], words, direction)
    tells = np.array([not only_asks(line.text) for line in lines], dtype=float)
    fits = tells * np.array([holds_value(asked.text, line.text) for line in lines], dtype=float)
    names_one = len(asked.named) == 1
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
        length=math.log1p(len(split_words(lines[0].text))),
    )


def likelihood(features: AnswerFeatures | None) -> float:
    """Return the probability, from 0 to 1, that memory holds the answer; 0 if nothing was found."""
    if features is None:
        return 0.0
    weighed = zip(astuple(COEFFICIENTS), astuple(features), strict=True)
    return 1 / (1 + math.exp(-(BIAS_WEIGHT + sum(weight * value for weight, value in weighed))))


def asks_value(question: str) -> bool:
    """Return True if a question asks for a value of a kind that has a recognisable form."""
    asked = any(pattern.search(question) for pattern, _ in VALUES_ASKED)
    return asked or any(one.search(question) for one in (MEASURED, ASKS_NUMBER, ASKS_NAME)) or asks_when(question)


def holds_value(question: str, text: str) -> bool:
    """Return False if a question asks for a value of a known kind and the text has none."""
    for asked, value in VALUES_ASKED:
        if asked.search(question):
            return value.search(text) is not None
    if MEASURED.search(question) or ASKS_NUMBER.search(question):
        return NUMBER.search(text) is not None
    return holds_wanted(question, text)


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
