"""Breaking text into rows that fit a terminal, also while the text grows."""

from __future__ import annotations

import re
import unicodedata

JOINER = "\u200d"
MAX_WORD_CHARS = 2000
"""Longer words, such as addresses, are broken."""


def width_of(character: str) -> int:
    """Return the columns of a character: 0 if it combines with the one before, 2 if it is wide, else 1."""
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def columns_of(text: str) -> int:
    """Return the columns of a text."""
    return len(text) if text.isascii() else sum(map(width_of, text))


def fold(text: str, columns: int) -> tuple[list[str], str]:
    """Return the full rows, broken between words or wide characters, and the rest, which may still grow.

    A word wider than a row stays whole up to a limit: the terminal wraps it without adding a line end.
    """
    *full, (start, end) = spans(text, columns)
    return [text[first:last] for first, last in full], text[start:end]


def spans(text: str, columns: int) -> list[tuple[int, int]]:
    """Return the start and end of each row, at least one. Spaces at a break belong to no row."""
    found: list[tuple[int, int]] = []
    start = 0
    while place := _break(text, start, columns):
        found.append((start, start + len(text[start:place].rstrip(" "))))
        start = place
        while start < len(text) and text[start] == " ":
            start += 1
    return [*found, (start, len(text))]


def tight_spans(text: str, columns: int) -> list[tuple[int, int]]:
    """Like `spans`, but breaks wide words too: no row is wider than `columns` (at least 2)."""
    found: list[tuple[int, int]] = []
    for start, end in spans(text, columns):
        used, begin = 0, start
        for place in range(start, end):
            width = width_of(text[place])
            if used + width > columns:
                found.append((begin, place))
                used, begin = 0, place
            used += width
        found.append((begin, end))
    return found


def _break(text: str, start: int, columns: int) -> int:
    """Return where the row that begins at `start` ends: the last break that fits, else the first break, else 0."""
    used = found = full = 0
    has_begun = False
    for place in range(start, len(text)):
        character = text[place]
        if has_begun and _may_break(text, place):
            if used > columns and found:
                return found
            found = place
            if used > columns:
                return found
        if place - start >= MAX_WORD_CHARS and full > start:
            return found or full
        has_begun = has_begun or character != " "
        full = full if used > columns else place
        used += 0 if character == " " and used >= columns else width_of(character)
    return found if used > columns else 0


def _may_break(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if after == " ":
        return False
    if before.isascii() and after.isascii():
        return before == " "
    if width_of(after) == 0 or before == JOINER:
        return False
    return before == " " or width_of(before) == 2 or width_of(after) == 2


def hang(line: str, columns: int) -> str:
    """Wrap a two-column line, such as a command and its description, within its second column."""
    found = re.match(r"(?:\S.{0,28}?)? {2,}(?=\S)", line)
    if found is None or columns_of(line) <= columns or 2 * found.end() > columns:
        return line
    full, rest = fold(line[found.end() :], columns - found.end())
    return found[0] + f"\n{' ' * found.end()}".join([*full, rest])


def head(text: str, columns: int) -> str:
    """Return the start of `text` on one row, with `…` if it was cut."""
    flat = " ".join(text.split())
    if columns_of(flat) <= columns:
        return flat
    used, place = 1, 0
    while used + width_of(flat[place]) <= columns:
        used += width_of(flat[place])
        place += 1
    return f"{flat[:place]}…"
