"""Markdown rendered as terminal rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes.cli.markdown import Markdown

PAINT = re.compile(r"\x1b\[([0-9;]*)m")


def rows_of(text: str, *, columns: int = 80, colored: bool = True, piece: int = 0) -> list[str]:
    """Return the rows of a text streamed in pieces of `size` characters; 0 sends it at once."""
    markdown = Markdown(lambda: columns, colored=colored)
    rows: list[str] = []
    for start in range(0, len(text), piece or len(text) or 1):
        rows += markdown.feed(text[start : start + (piece or len(text))])
        markdown.growing()
    return rows + markdown.end()


def plain(rows: Sequence[str]) -> list[str]:
    return [PAINT.sub("", row) for row in rows]
