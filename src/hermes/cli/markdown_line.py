"""One Markdown line as rows, while it is streamed: a heading, list item, quote or paragraph."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hermes.cli.inline import BOLD, DIM, UNDERLINE, Run, parse, settled
from hermes.cli.rows import columns_of, spans
from hermes.cli.styled import cut, fold_runs, paint, text_of, trimmed

MAX_HELD_CHARS = 400
"""Characters held back while a marked span, such as bold, may be open."""
MIN_COLUMNS = 16
MAX_QUOTE_DEPTH = 20
"""Deeper quotes are not rendered as quotes."""
HEADING = r" {0,3}(#{1,6}) +(?=\S)"
QUOTE = r" {0,3}> ?"
ITEM = r"( *)([-+*]|\d{1,9}[.)]) +(?=\S)"


class LineRows:
    """Renders a growing line. Each row starts with the line's prefix, such as an indent."""

    def __init__(self, line: str, columns: Callable[[], int], *, colored: bool) -> None:
        self._columns = columns
        self._colored = colored
        self._line = line
        self._first: list[Run] | None = None
        self._next: list[Run] = []
        self._style = ""
        self._read = 0
        self._runs: list[Run] = []

    def grow(self, line: str) -> list[str]:
        """Take the line as it is now; return the rows that became full."""
        self._line = line
        if self._first is None:
            self._begin()
        rest = self._line[self._read :]
        sure = settled(rest) if self._colored else len(rest.rstrip(" "))
        if not sure and len(rest) > MAX_HELD_CHARS:
            sure = rest.rfind(" ", 0, MAX_HELD_CHARS) + 1 or len(rest)
        self._take(rest[:sure])
        return self._full()

    def growing(self) -> list[str]:
        """Return the rows that are not full yet."""
        return self._painted([*self._runs, *self._inline(self._line[self._read :])])

    def end(self) -> list[str]:
        """End the line and return its last rows."""
        if self._first is None:
            self._begin()
        self._take(self._line[self._read :])
        return self._painted(self._runs) if text_of(self._runs).strip(" ") else []

    def _begin(self) -> None:
        self._first, self._next, self._style, self._read = _prefixes(self._line, self._colored)

    def _take(self, text: str) -> None:
        self._runs += self._inline(text)
        self._read += len(text)

    def _inline(self, text: str) -> list[Run]:
        return parse(text, self._style) if self._colored else [(text, "")] if text else []

    def _full(self) -> list[str]:
        """Return all rows but the last, which may still take a word."""
        *full, (self._first, self._runs) = self._laid_out(self._runs)
        return [paint([*before, *row]) for before, row in full]

    def _painted(self, runs: list[Run]) -> list[str]:
        return [paint([*before, *row]) for before, row in self._laid_out(trimmed(runs))]

    def _laid_out(self, runs: Sequence[Run]) -> list[tuple[list[Run], list[Run]]]:
        """Return each row with its prefix."""
        first = self._first or []
        found = spans(text_of(runs), self._room(first))
        rows = [(first, cut(runs, *found[0]))]
        if len(found) > 1:
            rest = cut(runs, found[1][0], found[-1][1])
            rows += [(self._next, row) for row in fold_runs(rest, self._room(self._next))]
        return rows

    def _room(self, prefix: Sequence[Run]) -> int:
        return max(MIN_COLUMNS, self._columns() - columns_of(text_of(prefix)))


def _prefixes(line: str, colored: bool, depth: int = 0) -> tuple[list[Run], list[Run], str, int]:
    """Return the prefix of the first row, the prefix of further rows, the text style, and the length of the markup."""
    if heading := re.match(HEADING, line):
        if not colored:
            return [(f"{heading[1]} ", "")], [], "", heading.end()
        return [], [], f"{BOLD};{UNDERLINE}" if len(heading[1]) == 1 else BOLD, heading.end()
    if depth < MAX_QUOTE_DEPTH and (quote := re.match(QUOTE, line)):
        bar: Run = ("│ ", DIM) if colored else ("> ", "")
        first, after, style, read = _prefixes(line[quote.end() :], colored, depth + 1)
        return [bar, *first], [bar, *after], style, quote.end() + read
    if item := re.match(ITEM, line):
        mark = "•" if colored and item[2] in "-+*" else item[2]
        indent = " " * len(item[1])
        return [(f"{indent}{mark} ", "")], [(f"{indent}{' ' * len(mark)} ", "")], "", item.end()
    indent = " " * (len(line) - len(line.lstrip(" ")))
    return [(indent, "")], [(indent, "")], "", len(indent)
