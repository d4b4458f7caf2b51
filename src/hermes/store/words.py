"""Words: how text becomes an index entry, a person's query, and the snippet that shows a match.

Chinese, Japanese, Korean, Thai and their neighbours are written without the spaces a tokenizer looks for, so each such
character is indexed as a word of its own and a run of them is searched as a phrase: that finds exactly the substring,
of any length.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from hermes.ranking.words import SPACELESS

BETWEEN_WORDS = r"\s\x00-/:-@\[-`{-\u00bf\u2000-\u206f\u3000-\u3004\u3008-\u303f\ud800-\udfff"
SPACELESS_CHARACTER = f"[{SPACELESS}]"
QUERY_PART = rf'"[^"]*"|[{SPACELESS}]+|[^{BETWEEN_WORDS}{SPACELESS}]+'
WORD = rf"[{SPACELESS}]+|[^{BETWEEN_WORDS}{SPACELESS}]+"
SNIPPET = 120
SHORTEST_STEM = 3
MOST_WORDS = 200
"""Words of a question that are looked for: a whole page asked at once must not stop the search."""
MOST_MARKED = 20
"""Words of a query that a snippet is looked for with."""
STOP_WORDS = frozenset(
    """
    a about all am an and any are as at be been but by can could did do does for from had has have he her him his how i
    if in is it its just like may me might my no not of on or our said say she should so some tell than that the their
    them then there these they this to too us was we were what when where which who why will with would you your
    """.split()  # noqa: SIM905 - one word a line would be a page
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiling these takes 25 ms, which only those who search should wait for."""
    return re.compile(pattern)


def segment(text: str) -> str:
    """`text` as the index sees it: one form of every character, spaceless scripts a character at a time."""
    return _compiled(SPACELESS_CHARACTER).sub(lambda found: f" {found[0]} ", unicodedata.normalize("NFKC", text))


def compile_query(text: str) -> str:
    """What a person typed as an FTS5 query: every word must occur, "quoted words" as a phrase. Never invalid."""
    parts = _compiled(QUERY_PART).findall(unicodedata.normalize("NFKC", text))
    phrases = [segment(" ".join(_compiled(WORD).findall(part))) for part in parts]
    return " AND ".join(f'"{phrase}"' for phrase in phrases if any(map(str.isalnum, phrase)))


def content_words(text: str) -> list[str]:
    """The words of a question that say what it is about; a run of spaceless script gives its pairs of characters."""
    words: list[str] = []
    for found in _compiled(WORD).findall(unicodedata.normalize("NFKC", text)):
        if _compiled(SPACELESS_CHARACTER).match(found):
            words += [found[place : place + 2] for place in range(max(1, len(found) - 1))]
        elif len(found) > 1 and found.lower() not in STOP_WORDS and any(map(str.isalnum, found)):
            words.append(found.lower())
    return list(dict.fromkeys(words))


def compile_related(text: str) -> str:
    """A question as an FTS5 query: any of its content words may occur. Never invalid."""
    return " OR ".join(f'"{segment(word)}"' for word in content_words(text)[:MOST_WORDS])


def snippet(content: str, query: str, width: int = SNIPPET) -> str:
    """One line of `content` around the first place where the query matched."""
    flat = " ".join(content.split())
    start = max(0, _first_match(flat, query) - width // 3)
    cut = flat[start : start + width]
    return ("…" if start else "") + cut + ("…" if start + width < len(flat) else "")


def _first_match(flat: str, query: str) -> int:
    """Where the match begins. What only matched by its stem ("running" for "runs") is found by its first letters."""
    folded, positions = _fold(flat)
    parts = [_fold(part.strip('" '))[0] for part in _compiled(QUERY_PART).findall(query)[:MOST_MARKED]]
    words = [_fold(word)[0] for word in _compiled(WORD).findall(query)[:MOST_MARKED]]
    for wanted in (parts, words):
        if places := [place for text in wanted if text and (place := _find_word(folded, text)) is not None]:
            return positions[min(places)]
    stems = [place for word in words if (place := _find_stem(folded, word)) is not None]
    return positions[min(stems)] if stems else 0


def _find_word(folded: str, text: str) -> int | None:
    """Where `text` stands, as a word of its own rather than inside another one."""
    found = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", folded)
    place = found.start() if found else folded.find(text)
    return place if place >= 0 else None


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
