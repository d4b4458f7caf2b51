"""Words: how text becomes an index entry, a query, and the snippet that shows a match.

Chinese, Japanese, Korean, Thai and related scripts have no spaces for a tokenizer. So each such character is indexed
as one word, and a run of them is searched as a phrase, which finds exactly the substring, of any length.
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
SNIPPET_CHARS = 120
MIN_STEM_CHARS = 3
MAX_SNIPPET_WORDS = 20
"""Maximum number of query words that position a snippet."""
MAX_OCCURRENCES = 10
"""Maximum number of occurrences considered per word."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use: these take 25 ms, which only searches should wait for."""
    return re.compile(pattern)


# FTS5 takes a run of CJK for one word: characters are indexed one by one and searched as phrases.
def segment(text: str) -> str:
    """Return `text` as it is indexed: normalized, with each character of a spaceless script as one word."""
    return _compiled(SPACELESS_CHARACTER).sub(lambda found: f" {found[0]} ", unicodedata.normalize("NFKC", text))


def only_words(text: str) -> str:
    """Return the words of a text without punctuation, or "" if it has none."""
    words = _compiled(WORD).findall(unicodedata.normalize("NFKC", text))
    return " ".join(word for word in words if any(map(str.isalnum, word)))


def snippet(content: str, query: str, width: int = SNIPPET_CHARS) -> str:
    """Return one line of `content` around the place that matches most of the query."""
    flat = " ".join(content.split())
    start = max(0, _best_match(flat, query, width) - width // 3)
    cut = flat[start : start + width]
    return ("…" if start else "") + cut + ("…" if start + width < len(flat) else "")


def _best_match(flat: str, query: str, width: int) -> int:
    """Return the position where words of the query stand close together, else that of a word stem."""
    folded, positions = _fold(flat)
    quoted = [
        _fold(part.strip('" '))[0] for part in _compiled(QUERY_PART).findall(query)[:MAX_SNIPPET_WORDS] if '"' in part
    ]
    words = [_fold(word.rstrip("*"))[0] for word in telling_words(split_words(query))[:MAX_SNIPPET_WORDS]]
    for wanted in (quoted, words):
        places = [place for text in wanted if text for place in _find_words(folded, text)]
        if places:
            return positions[max(sorted(places), key=lambda first: sum(0 <= p - first < width // 2 for p in places))]
    stems = [place for word in words if (place := _find_stem(folded, word)) is not None]
    return positions[min(stems)] if stems else 0


def _find_words(folded: str, text: str) -> list[int]:
    """Return the positions of `text` as a whole word, else the first one inside another word."""
    found = [
        match.start() for match in islice(re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", folded), MAX_OCCURRENCES)
    ]
    return found or [place for place in (folded.find(text),) if place >= 0]


def _find_stem(folded: str, word: str) -> int | None:
    for length in range(len(word) - 1, MIN_STEM_CHARS - 1, -1):
        if found := re.search(rf"(?<!\w){re.escape(word[:length])}", folded):
            return found.start()
    return None


def _fold(text: str) -> tuple[str, range | list[int]]:
    """Return `text` without case, accents and variant forms, and the original position of each character."""
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
