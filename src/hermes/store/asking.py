"""Questions to the message history: their words, quoted phrases, dates, and whose messages they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermes.ranking.dates import MONTHS, Dates, asks_when, find_dates
from hermes.ranking.personal import leave_out, spellings
from hermes.ranking.traits import OF_ONESELF, traits_of
from hermes.ranking.words import split_words, telling_words
from hermes.store.words import only_words

QUOTED = re.compile(r'"([^"]+)"')
YEAR_DIGIT_COUNT = 4
"""Number of digits of a year."""
ADDRESSED = frozenset({"you", "your", "yours", "yourself", "du", "dich", "dir", "dein", "deine", "tú", "ti", "tus"})
"""Words that address the agent."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """A question to the history. Apart from quotes, its text has no operators."""

    text: str
    words: tuple[str, ...]
    """Words to search for, without stop words; a quoted phrase counts as one word."""
    of_dates: tuple[str, ...]
    """Words that are part of a date. They describe the time of a message, so they are not searched for."""
    phrases: tuple[str, ...]
    """Quoted phrases. A result must contain all of them."""
    role: str | None
    """Role of the messages that the question asks for: "user" if it says "I", "assistant" if it says "you"."""
    dates: Dates
    asks_when: bool

    def named(self, people: Iterable[str]) -> list[str]:
        """Return the people whom the question names, by full name or first name."""
        asked = {spelling.casefold() for spelling in spellings(self.text)}
        return [name for name in people if any(part.casefold() in asked for part in _parts(name))]

    def words_without(self, people: Iterable[str]) -> frozenset[str]:
        """Return the search words without the names of `people`; all search words if nothing else is left."""
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
    """Return True if `word` is part of one of the dates."""
    if not word.isdecimal():
        return MONTHS.get(word) in dates.months
    return len(word) <= YEAR_DIGIT_COUNT and int(word) in dates.years | dates.months | dates.days


def _role(text: str) -> str | None:
    """Return "user" for a question about oneself, "assistant" for one that addresses the agent, None for neither or
    both."""
    of_oneself = bool(traits_of(text) & OF_ONESELF)
    is_addressed = not ADDRESSED.isdisjoint(split_words(text))
    if of_oneself == is_addressed:
        return None
    return "user" if of_oneself else "assistant"


def _parts(name: str) -> Sequence[str]:
    return (name, *name.split()[:1])
