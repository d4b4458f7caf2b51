"""Names of people in a question, which say whose messages it is about."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise

MAX_NAME_WORDS = 24
"""The number of words at the beginning of a question in which names are looked for."""
MAX_SPELLINGS = 3 * MAX_NAME_WORDS + 3 * (MAX_NAME_WORDS - 1)
"""The largest number of spellings of a text."""
MAX_CACHED_TEXTS = 256
"""The number of texts whose spellings are cached: a search reads its question more than once."""
WORD = re.compile(r"[^\W_]+", re.UNICODE)
OWN = re.compile(r"['’]s\b")
ROLES = frozenset({"ai", "agent", "assistant", "bot", "human", "me", "system", "user", "you"})
"""Common words that do not count as names, even if a peer has such a name."""


@lru_cache(maxsize=MAX_CACHED_TEXTS)
def spellings(text: str) -> tuple[str, ...]:
    """Return every name that a peer mentioned in the text could have: its words and word pairs, in the usual spellings
    of ids.
    """
    words = WORD.findall(OWN.sub("", text))[:MAX_NAME_WORDS]
    found: dict[str, None] = {}
    for word in words:
        if not word.isdigit() and word.lower() not in ROLES:
            found.update(dict.fromkeys((word, word.lower(), word.capitalize())))
    for first, second in pairwise(words):
        found.update(dict.fromkeys((f"{first} {second}", f"{first}-{second}".lower(), f"{first}_{second}".lower())))
    return tuple(found)


def leave_out(text: str, names: Collection[str]) -> str:
    """Return the text without these names, or the whole text if nothing else would be left."""
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    pattern = "|".join(r"[\s_-]".join(map(re.escape, WORD.findall(name))) for name in longest_first)
    left = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)(?:['’]s\b)?", " ", text, flags=re.IGNORECASE)
    return left if WORD.search(left) else text
