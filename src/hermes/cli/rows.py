"""Breaking text into rows that fit a terminal, while the text is still growing."""

from __future__ import annotations

import unicodedata

JOINER = "\u200d"


def width_of(character: str) -> int:
    """How many columns a character takes: none when it combines with the one before, two when it is wide."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def columns_of(text: str) -> int:
    """How many columns a text takes."""
    return len(text) if text.isascii() else sum(map(width_of, text))


def fold(text: str, columns: int) -> tuple[list[str], str]:
    """The rows that are full, broken between words or wide characters, and the rest, which may still grow.

    A word that is wider than a row stays whole: the terminal breaks it without putting a line end into it.
    """
    rows: list[str] = []
    while columns_of(text) > columns and (place := _break(text, columns)):
        rows.append(text[:place].rstrip(" "))
        text = text[place:].lstrip(" ")
    return rows, text


def _break(text: str, columns: int) -> int:
    """Where the first row ends: the last good place that fits, else the first one there is, else 0."""
    used = found = 0
    for place, character in enumerate(text):
        if place and _may_break(text, place) and text[:place].strip(" "):
            if used > columns and found:
                return found
            found = place
            if used > columns:
                return found
        used += 0 if character == " " and used >= columns else width_of(character)
    return found if used > columns else 0


def _may_break(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if after == " " or width_of(after) == 0 or before == JOINER:
        return False
    return before == " " or width_of(before) == 2 or width_of(after) == 2


def tail(text: str, columns: int) -> str:
    """As much of the end of `text` as fits."""
    if columns_of(text) <= columns:
        return text
    used, place = 0, len(text)
    while place and used + width_of(text[place - 1]) <= columns:
        place -= 1
        used += width_of(text[place])
    return text[place:]


def head(text: str, columns: int) -> str:
    """The beginning of `text` on one row, with `…` when there is more."""
    flat = " ".join(text.split())
    if columns_of(flat) <= columns:
        return flat
    used, place = 1, 0
    while used + width_of(flat[place]) <= columns:
        used += width_of(flat[place])
        place += 1
    return f"{flat[:place]}…"
