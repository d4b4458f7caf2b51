"""Words: how text becomes an index entry, a person's query, and the snippet that shows a match.

Chinese, Japanese, Korean, Thai and their neighbours are written without the spaces a tokenizer looks for, so each such
character is indexed as a word of its own and a run of them is searched as a phrase: that finds exactly the substring,
of any length.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import islice

from hermes.ranking.words import SPACELESS, split_words, telling_words

BETWEEN_WORDS = r"\s\x00-/:-@\[-`{-\u00bf\u2000-\u206f\u3000-\u3004\u3008-\u303f\ud800-\udfff"
SPACELESS_CHARACTER = f"[{SPACELESS}]"
QUERY_PART = rf'"[^"]*"|[{SPACELESS}]+|[^{BETWEEN_WORDS}{SPACELESS}]+'
WORD = rf"[{SPACELESS}]+|[^{BETWEEN_WORDS}{SPACELESS}]+"
SNIPPET = 120
SHORTEST_STEM = 3
MOST_MARKED = 20
"""Words of a query that a snippet is looked for with."""
MOST_PLACES = 10
"""Places of each that are looked at."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiling these takes 25 ms, which only those who search should wait for."""
    return re.compile(pattern)


def segment(text: str) -> str:
    """`text` as the index sees it: one form of every character, spaceless scripts a character at a time."""
    return _compiled(SPACELESS_CHARACTER).sub(lambda found: f" {found[0]} ", unicodedata.normalize("NFKC", text))


def only_words(text: str) -> str:
    """A text without what stands between its words; "" when it has none."""
    words = _compiled(WORD).findall(unicodedata.normalize("NFKC", text))
    return " ".join(word for word in words if any(map(str.isalnum, word)))


def snippet(content: str, query: str, width: int = SNIPPET) -> str:
    """One line of `content` around the place where most of the query matched."""
    flat = " ".join(content.split())
    start = max(0, _best_match(flat, query, width) - width // 3)
    cut = flat[start : start + width]
    return ("…" if start else "") + cut + ("…" if start + width < len(flat) else "")


def _best_match(flat: str, query: str, width: int) -> int:
    """Where telling words of a query stand close together; one that only matched by its stem by its first letters."""
    folded, positions = _fold(flat)
    quoted = [_fold(part.strip('" '))[0] for part in _compiled(QUERY_PART).findall(query)[:MOST_MARKED] if '"' in part]
    words = [_fold(word.rstrip("*"))[0] for word in telling_words(split_words(query))[:MOST_MARKED]]
    for wanted in (quoted, words):
        places = [place for text in wanted if text for place in _find_words(folded, text)]
        if places:
            return positions[max(sorted(places), key=lambda first: sum(0 <= p - first < width // 2 for p in places))]
    stems = [place for word in words if (place := _find_stem(folded, word)) is not None]
    return positions[min(stems)] if stems else 0


def _find_words(folded: str, text: str) -> list[int]:
    """Where `text` stands first, as a word of its own rather than inside another one."""
    found = [match.start() for match in islice(re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", folded), MOST_PLACES)]
    return found or [place for place in (folded.find(text),) if place >= 0]


def _find_stem(folded: str, word: str) -> int | None:
    for length in range(len(word) - 1, SHORTEST_STEM - 1, -1):
        if found := re.search(rf"(?<!\w){re.escape(word[:length])}", folded):
            return found.start()
    return None


def _fold(text: str) -> tuple[str, range | list[int]]:
    """`text` without case, accents and variant forms, and for each of its characters the place it came from."""
    if text.isascii():
        return text.lower(), range(len(text))
    letters: list[str] = []
    positions: list[int] = []
    for place, character in enumerate(text):
        for letter in unicodedata.normalize("NFKD", character).lower():
            if not unicodedata.combining(letter):
                letters.append(letter)
                positions.append(place)
    return "".join(letters), positions
