"""Comparison of facts: small models state one fact repeatedly in nearly the same words."""

from __future__ import annotations

import re
import unicodedata

WORD = re.compile(r"[^\W_]+")
MARKS = re.compile("['\u2019]")
LONG_NUMBER, YEAR, BEGINS = 4, re.compile("(19|20)[0-9][0-9]"), ".!?…:\n"
FILLERS = frozenset(
    """
    a an and are am be been has have he her his i is it its my of on our person persons s she that the their they this
    to user users was we were who your you
    """.split()  # noqa: SIM905 - one word a line would be a page
)
"""Words without meaning for a fact. Words that negate one ("not", "never", "no") are not among them."""
LINKS = frozenset("also as at by call called for from in name named own owns with".split())  # noqa: SIM905 - as above
"""Further words without weight when the order of words is ignored."""


def says_the_same(one: str, other: str) -> bool:
    """Return True if two texts have the same words in the same order, ignoring case, punctuation, plurals and fillers.

    "Collects stamps" and "The user collects stamps." are the same; names, numbers and "not" always count.
    """
    words = _words(one)
    return words == _words(other) and bool(words)


def fact_words(text: str) -> frozenset[str]:
    """Return the meaningful words of a text, normalised for comparison."""
    return frozenset(word for word in _words(text) if word not in LINKS)


def marking_words(text: str, *, first: bool = True) -> frozenset[str]:
    """Return the fact words that look like names (capitalised) or numbers of four digits or more, except years.
    Without `first`, capitalised words at the start of a sentence are left out, since they may not be names."""
    words = WORD.finditer(MARKS.sub("", unicodedata.normalize("NFKC", text)))
    return fact_words(" ".join(found[0] for found in words if _is_marking(found, first)))


def _is_marking(found: re.Match[str], first: bool) -> bool:
    word, before = found[0], found.string[: found.start()].rstrip(' \t"“„«([')
    if word.isdecimal():
        return len(word) >= LONG_NUMBER and YEAR.fullmatch(word) is None
    return word[0].isupper() and (first or (before != "" and before[-1] not in BEGINS))


def _words(text: str) -> list[str]:
    plain = MARKS.sub("", unicodedata.normalize("NFKC", text).casefold())
    return [_singular(word) for word in WORD.findall(plain) if word not in FILLERS]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
