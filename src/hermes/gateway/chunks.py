"""Long replies in pieces that a platform takes: cut at paragraphs, then lines, then words. Nothing is lost.

Lengths are counted in UTF-16 units, as Telegram and Discord do: never less than characters, so right for all.
"""

from __future__ import annotations


def split_text(text: str, longest: int) -> list[str]:
    """`text` in pieces of at most `longest` units, in order; blank text gives none."""
    pieces: list[str] = []
    rest = text.strip()
    while len(window := cut_text(rest, longest)) < len(rest):
        cut = _cut_place(rest, max(1, len(window)))
        head, rest = rest[:cut], rest[cut:]
        pieces.append(head.rstrip())
        rest = rest.lstrip("\n") if head.endswith("\n") else rest.lstrip(" ")  # an indented line stays indented
    return [piece for piece in [*pieces, rest] if piece.strip()]


def cut_text(text: str, longest: int) -> str:
    """As much of the beginning of `text` as fits."""
    window = text[:longest]
    while (over := count_units(window) - longest) > 0:
        window = window[: -((over + 1) // 2)]
    return window


def count_units(text: str) -> int:
    """How long a text is: what lies beyond the basic plane, such as most emoji, counts twice."""
    return len(text) + sum(character > "\uffff" for character in text)


def _cut_place(text: str, longest: int) -> int:
    """The last good place for a cut, in the second half where there is one."""
    for mark in ("\n\n", "\n", ". ", " "):
        place = text.rfind(mark, longest // 2, longest)
        if place > 0:
            return place + len(mark.rstrip(" "))
    return longest
