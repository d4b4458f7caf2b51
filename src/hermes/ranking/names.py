"""Names of people in a question. They say whose messages are meant, not what these are about."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise

LOOKED_AT = 24
"""Names are looked for in the first so many words of a question."""
SPELLINGS = 3 * LOOKED_AT + 3 * (LOOKED_AT - 1)
"""The spellings of a text are no more than this."""
TEXTS_KEPT = 256
"""A search reads its question more than once: the last ones are kept."""
WORD = re.compile(r"[^\W_]+", re.UNICODE)
OWN = re.compile(r"['’]s\b")
ROLES = frozenset({"ai", "agent", "assistant", "bot", "human", "me", "system", "user", "you"})
"""Common words that do not count as a name, even where a peer is called so."""


@lru_cache(maxsize=TEXTS_KEPT)
def spellings(text: str) -> tuple[str, ...]:
    """Every name that a peer mentioned in the text could have: its words and pairs of words, in the usual spellings of
    ids."""
    words = WORD.findall(OWN.sub("", text))[:LOOKED_AT]
    found: dict[str, None] = {}
    for word in words:
        if not word.isdigit() and word.lower() not in ROLES:
            found.update(dict.fromkeys((word, word.lower(), word.capitalize())))
    for first, second in pairwise(words):
        found.update(dict.fromkeys((f"{first} {second}", f"{first}-{second}".lower(), f"{first}_{second}".lower())))
    return tuple(found)


def leave_out(text: str, names: Collection[str]) -> str:
    """The text without these names, or the whole text if nothing else would be left."""
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = "|".join(r"[\s_-]".join(map(re.escape, WORD.findall(name))) for name in longest_first)
    left = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", text, flags=re.IGNORECASE)
    return left if WORD.search(left) else text
