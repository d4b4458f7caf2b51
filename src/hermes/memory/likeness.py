"""Whether two texts say the same: small models tell one fact again and again in nearly the same words."""

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
"""Words that carry no fact. Those that turn one into its opposite ("not", "never", "no") are none of them."""
LINKS = frozenset("also as at by call called for from in name named own owns with".split())  # noqa: SIM905 - as above
"""More words without weight, for who compares words in any order."""


def says_the_same(one: str, other: str) -> bool:
    """Whether two texts have the same words in the same order, but for case, marks, plurals and words without weight.

    "Collects stamps" and "The user collects stamps." are the same; who or what, how many and "not" always count.
    """
    words = _words(one)
    return words == _words(other) and bool(words)


def fact_words(text: str) -> frozenset[str]:
    """The words of a text that carry a fact, as they are compared."""
    return frozenset(word for word in _words(text) if word not in LINKS)


def marking_words(text: str, *, first: bool = True) -> frozenset[str]:
    """Those fact words that look like names, with a capital, or like numbers that are no year: of four digits or
    more. A capital at the beginning of a sentence tells little: without `first` such words are left out."""
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
