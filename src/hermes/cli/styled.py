"""Runs of styled text as rows of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from hermes.cli.inline import Run
from hermes.cli.rows import spans

RESET = "\x1b[0m"


def text_of(runs: Sequence[Run]) -> str:
    """Return the text without styles."""
    return "".join(text for text, _ in runs)


def paint(runs: Sequence[Run]) -> str:
    """Return a row with terminal codes. Each run resets its style, so that a row can be printed by itself."""
    parts = ((style, text_of(list(same))) for style, same in groupby(runs, key=itemgetter(1)))
    return "".join(f"\x1b[{style}m{text}{RESET}" if style else text for style, text in parts)


def fold_runs(runs: Sequence[Run], columns: int) -> list[list[Run]]:
    """Break runs into rows of at most `columns`. Returns at least one row; the last may still grow."""
    return [cut(runs, start, end) for start, end in spans(text_of(runs), columns)]


def cut(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """Return the runs between two positions of their text."""
    taken: list[Run] = []
    place = 0
    for text, style in runs:
        part = text[max(0, start - place) : max(0, end - place)]
        if part:
            taken.append((part, style))
        place += len(text)
    return taken


def trimmed(runs: Sequence[Run]) -> list[Run]:
    """Return the runs without trailing spaces."""
    text = text_of(runs)
    return cut(runs, 0, len(text.rstrip(" ")))
