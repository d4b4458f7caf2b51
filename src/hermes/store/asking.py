"""What a question asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermes.ranking.dates import MONTHS, Dates, asks_when, find_dates
from hermes.ranking.names import leave_out, spellings
from hermes.ranking.traits import OF_ONESELF, traits_of
from hermes.ranking.words import split_words, telling_words
from hermes.store.words import only_words

QUOTED = re.compile(r'"([^"]+)"')
YEAR = 4
"""Digits of a year."""
ADDRESSED = frozenset({"you", "your", "yours", "yourself", "du", "dich", "dir", "dein", "deine", "tú", "ti", "tus"})
"""Who is asked is meant by these."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """A question. Nothing in it is an operator, but for quotes."""

    text: str
    words: tuple[str, ...]
    """What is looked for: words that tell something, and what stands in quotes as one."""
    of_dates: tuple[str, ...]
    """Words of the dates in it. They say when something was said, not what."""
    phrases: tuple[str, ...]
    """What stands in quotes, and must occur."""
    role: str | None
    """Whose words it speaks of, where it says "I" or "you"."""
    dates: Dates
    asks_when: bool

    def named(self, people: Iterable[str]) -> list[str]:
        """Those of the people whom it names, by their whole name or the first of it."""
        asked = {spelling.casefold() for spelling in spellings(self.text)}
        return [name for name in people if any(part.casefold() in asked for part in _parts(name))]

    def words_without(self, people: Iterable[str]) -> frozenset[str]:
        """The words to look for without these names, which say whose words are meant; all, if nothing is left."""
        left = leave_out(self.text, [part for name in people for part in _parts(name)])
        return frozenset([*telling_words(split_words(left)), *self.phrases])


def understand(text: str) -> HistoryQuestion:
    phrases = [phrase for found in QUOTED.findall(text) if (phrase := only_words(found))]
    dates = find_dates(text)
    words = telling_words(split_words(text))
    of_dates = [word for word in words if _is_of(dates, word)]
    looked_for = [word for word in words if word not in of_dates]
    return HistoryQuestion(
        text,
        (*dict.fromkeys([*looked_for, *phrases]),),
        (*of_dates,),
        (*dict.fromkeys(phrases),),
        _role(text),
        dates,
        asks_when(text),
    )


def _is_of(dates: Dates, word: str) -> bool:
    """Is it a part of one of the dates?"""
    if not word.isdecimal():
        return MONTHS.get(word) in dates.months
    return len(word) <= YEAR and int(word) in dates.years | dates.months | dates.days


def _role(text: str) -> str | None:
    """A question with "I" means what people said; one with "you" means what the agent said."""
    of_oneself = bool(traits_of(text) & OF_ONESELF)
    is_addressed = not ADDRESSED.isdisjoint(split_words(text))
    if of_oneself == is_addressed:
        return None
    return "user" if of_oneself else "assistant"


def _parts(name: str) -> Sequence[str]:
    return (name, *name.split()[:1])
