"""How near to each other the words of a question, and a value of the kind that it asks for, stand in found lines. Pure.

A line may hold all words of a question and a value of the right kind, and still say nothing of it: "Mum's birthday, 85
today. She introduced Bridget …" does not tell how old Bridget is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hermes.ranking.asked_values import find_value_places, writes_small
from hermes.ranking.scoring import Flags, Floats
from hermes.ranking.words import ENGLISH, GERMAN, SENTENCE_END, split_words

MAX_LINE_WORDS, MAX_VALUES, MAX_ANCHORS = 60, 12, 6
MIN_STEM_CHARS, MAX_ENDING_CHARS = 3, 3
LEAST_CLOSENESS, FULL_CLOSENESS = 0.1, 0.9
"""Two words with vectors that are less close have nothing in common; from the second on they mean the same."""
NEAR_CHARS, FAR_CHARS, SENTENCE_CHARS = 12, 30, 50
"""A word within so many characters of a value stands beside it; beyond, its match fades with the second as the length
in which it falls to a third; the end of a sentence counts as so many characters more.
"""
INNER_NAME = re.compile(r"(?<=[\w,'’] )[A-ZÀ-Þ][\w-]+")
Direction = Callable[[str], Floats]


@dataclass(frozen=True, slots=True)
class WordMatches:
    """How well each word of found lines matches each word of a question, from 0 to 1."""

    matches: Floats
    """One row for each word of a line, one column for each of the question's words."""
    places: Floats
    """The place of each row's word in its line, in characters."""
    lines: Sequence[slice]
    """The rows of each line; the last row of each is empty."""

    def hold(self) -> Floats:
        """Return how well each line matches each word of the question."""
        return np.array([self.matches[rows].max(axis=0) for rows in self.lines])


def match_words(texts: Sequence[str], words: Sequence[str], direction: Direction | None) -> WordMatches:
    """Return how well the words of the texts match: by a form of the word, or by meaning."""
    said = [split_words(text)[:MAX_LINE_WORDS] for text in texts]
    every = {word: place for place, word in enumerate(dict.fromkeys(word for line in said for word in line))}
    close = np.zeros((len(every) + 1, len(words)), dtype=np.float32)
    if direction is not None and every:
        alike = np.array([direction(word) for word in every]) @ np.array([direction(word) for word in words]).T
        close[:-1] = ((alike - LEAST_CLOSENESS) / (FULL_CLOSENESS - LEAST_CLOSENESS)).clip(0, 1)
    for at, word in enumerate(words):
        begin = word[:MIN_STEM_CHARS]
        close[
            [place for other, place in every.items() if other[:MIN_STEM_CHARS] == begin and is_form(word, other)], at
        ] = 1
    places = [_find_places(text, line) for text, line in zip(texts, said, strict=True)]
    ends = np.cumsum([0, *(len(line) + 1 for line in said)]).tolist()
    rows = [place for line in said for place in (*(every[word] for word in line), len(every))]
    return WordMatches(close[rows], np.concatenate(places), [slice(*ends_of) for ends_of in pairwise(ends)])


def measure_nearness(question: str, texts: Sequence[str], told: Floats, found: WordMatches) -> float:
    """Return the best match of all words of the question near to one value of the kind asked for, or, if every text
    may hold the value, near to one of the words that match best. `told` is 0 for lines that state nothing.
    """
    is_small, best = writes_small(texts), 0.0
    for text, is_told, rows in zip(texts, told, found.lines, strict=True):
        if not is_told:
            continue
        matches, places = found.matches[rows], found.places[rows]
        strongest = matches.max(axis=1)
        values = find_value_places(question, text, is_small=is_small)
        at = places[np.argsort(-strongest, kind="stable")[:MAX_ANCHORS]] if values is None else _shift(text, values)
        if len(at):
            far = np.abs(places[:, None] - at[None, :MAX_VALUES]) - NEAR_CHARS
            faded = np.exp(np.maximum(far, 0) / -FAR_CHARS)
            joint = (matches[:, None, :] * faded[:, :, None]).max(axis=0).mean(axis=1)
            best = max(best, float(joint.max()))
    return best


def find_names(question: str, words: Sequence[str]) -> Flags:
    """Return which words the question writes with a capital inside a sentence. In German these are all nouns, so none
    counts.
    """
    said = split_words(question)
    if sum(word in GERMAN for word in said) > sum(word in ENGLISH for word in said):
        return np.zeros(len(words), dtype=bool)
    names = {word for name in INNER_NAME.findall(question) for word in split_words(name)}
    return np.array([word in names for word in words], dtype=bool)


def is_form(one: str, other: str) -> bool:
    """Return True if two words differ only in their ending."""
    if one == other or one.isdigit() or other.isdigit():
        return one == other
    shorter, longer = sorted((one, other), key=len)
    is_long = len(shorter) >= MIN_STEM_CHARS and len(longer) - len(shorter) <= MAX_ENDING_CHARS
    return is_long and longer.startswith(shorter[: max(MIN_STEM_CHARS, len(shorter) - 1)])


def _find_places(text: str, words: Sequence[str]) -> Floats:
    """Return the place of each word in a line, and one more for the empty row."""
    small, at, places = text.lower(), 0, list[int]()
    for word in words:
        at = max(at, small.find(word.rstrip("*"), at))
        places.append(at)
    return _shift(text, [*places, at])


def _shift(text: str, places: Sequence[int]) -> Floats:
    """Return places in characters, further apart if they are in different sentences."""
    given = np.array(places, dtype=np.float32)
    ends = [end.start() for end in SENTENCE_END.finditer(text)]
    if ends:
        given += SENTENCE_CHARS * np.searchsorted(ends, given)
    return given
