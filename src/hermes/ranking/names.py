"""Names of people in a question: they say whose words are looked for, and not which."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise

LOOKED_AT = 24
"""In how many words of a question names are looked for."""
WORD = re.compile(r"[^\W_]+", re.UNICODE)
OWN = re.compile(r"['’]s\b")
ROLES = frozenset({"ai", "agent", "assistant", "bot", "human", "me", "system", "user", "you"})
"""A peer that is called so is not named when the word stands in a question: it may mean anything."""


def spellings(text: str) -> list[str]:
    """How peers that a text names may be called, each once: its words and its pairs of words, as people write ids."""
    words = WORD.findall(OWN.sub("", text))[:LOOKED_AT]
    found: dict[str, None] = {}
    for word in words:
        if not word.isdigit() and word.lower() not in ROLES:
            found.update(dict.fromkeys((word, word.lower(), word.capitalize())))
    for first, second in pairwise(words):
        found.update(dict.fromkeys((f"{first} {second}", f"{first}-{second}".lower(), f"{first}_{second}".lower())))
    return list(found)


def leave_out(text: str, names: Collection[str]) -> str:
    """The text without these names; all of it when nothing else is in it."""
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = "|".join(r"[\s_-]".join(map(re.escape, WORD.findall(name))) for name in longest_first)
    left = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", text, flags=re.IGNORECASE)
    return left if WORD.search(left) else text
