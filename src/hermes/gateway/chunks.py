"""Long replies in pieces that a platform takes: cut at paragraphs, then lines, then words. Nothing is lost."""

from __future__ import annotations


def split_text(text: str, longest: int) -> list[str]:
    """`text` in pieces of at most `longest` characters, in order; blank text gives none."""
    pieces: list[str] = []
    rest = text.strip()
    while len(rest) > longest:
        cut = _cut_place(rest, longest)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [piece for piece in [*pieces, rest] if piece]


def _cut_place(text: str, longest: int) -> int:
    """The last good place for a cut, in the second half where there is one."""
    for mark in ("\n\n", "\n", ". ", " "):
        place = text.rfind(mark, longest // 2, longest)
        if place > 0:
            return place + len(mark.rstrip(" "))
    return longest
