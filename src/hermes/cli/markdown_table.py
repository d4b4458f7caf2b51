"""A Markdown table as rows that fit the terminal: aligned if possible, otherwise each row as a list of its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from hermes.cli.inline import BOLD, DIM, Run, parse
from hermes.cli.rows import columns_of, tight_spans
from hermes.cli.styled import cut, paint, text_of, trimmed

Alignment = Literal["left", "right", "center"]
GAP = "  "
MIN_CELL_COLUMNS = 6
"""Least width of a table column; if that does not fit, the table becomes a list."""
MAX_HELD_ROWS = 8
"""Rows held back to find the column widths. Later rows use these widths and are final at once."""
DELIMITER = r":?-+:?"
CELL_END = r"(?<!\\)\|"


def is_row(line: str) -> bool:
    """Return True if a line may be part of a table."""
    return line.lstrip(" ").startswith("|")


def alignments(line: str, header: str) -> list[Alignment]:
    """Return the column alignments from the delimiter line below a header; empty if it is not one."""
    marks = _cells(line)
    if (
        not is_row(line)
        or not all(re.fullmatch(DELIMITER, mark) for mark in marks)
        or len(marks) != len(_cells(header))
    ):
        return []
    return [_alignment(mark) for mark in marks]


def _alignment(mark: str) -> Alignment:
    if mark.endswith(":"):
        return "center" if mark.startswith(":") else "right"
    return "left"


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in re.split(CELL_END, inner)]


class MarkdownTable:
    """Renders a table line by line."""

    def __init__(self, header: str, aligned: Sequence[Alignment], *, colored: bool) -> None:
        self._colored = colored
        self._aligned = aligned
        self._header = self._parse(header, BOLD)
        self._held: list[list[list[Run]]] = []
        self._widths: list[int] | None = None
        self._is_begun = False

    def add(self, line: str, columns: int) -> list[str]:
        """Add a row; return the rows that became final."""
        self._held.append(self._parse(line))
        if self._is_begun or len(self._held) > MAX_HELD_ROWS:
            return self.end(columns)
        return []

    def rows(self, columns: int) -> list[str]:
        """Return the rows that are not final yet."""
        if self._is_begun and not self._held:
            return []
        widths = self._widths if self._is_begun else self._fit(columns)
        if widths is None:
            return [row for cells in self._held for row in self._as_list(cells, columns)] or [
                paint(run) for run in self._header
            ]
        rows = [] if self._is_begun else [*self._lay_out(self._header, widths), self._rule(widths)]
        for cells in self._held:
            rows += self._lay_out(cells, widths)
        return rows

    def end(self, columns: int) -> list[str]:
        """Return the held rows as final, and fix the column widths."""
        finished = self.rows(columns)
        if not self._is_begun:
            self._widths, self._is_begun = self._fit(columns), True
        self._held = []
        return finished

    def _parse(self, line: str, style: str = "") -> list[list[Run]]:
        cells = _cells(line)[: len(self._aligned)]
        cells += [""] * (len(self._aligned) - len(cells))
        return [parse(cell, style) if self._colored else [(cell, "")] for cell in cells]

    def _fit(self, columns: int) -> list[int] | None:
        """Return the column widths; None if the columns do not fit side by side."""
        rows = [self._header, *self._held]
        widths = [max(1, *(columns_of(text_of(row[place])) for row in rows)) for place in range(len(self._aligned))]
        room = columns - len(GAP) * (len(widths) - 1)
        if sum(min(width, MIN_CELL_COLUMNS) for width in widths) > room:
            return None
        while sum(widths) > room:  # the widest gives way, down to the next one
            widest = max(widths)
            below = max([MIN_CELL_COLUMNS, *(width for width in widths if width < widest)])
            giving = [place for place, width in enumerate(widths) if width == widest]
            share = max(1, min(widest - below, -(-(sum(widths) - room) // len(giving))))
            for place in giving:
                widths[place] -= share
        return widths

    def _lay_out(self, cells: Sequence[Sequence[Run]], widths: Sequence[int]) -> list[str]:
        folded = [_fold_cell(cell, width) for cell, width in zip(cells, widths, strict=True)]
        height = max(len(cell) for cell in folded)
        rows: list[str] = []
        for line in range(height):
            runs: list[Run] = []
            for place, cell in enumerate(folded):
                part = cell[line] if line < len(cell) else []
                free = max(0, widths[place] - columns_of(text_of(part)))
                before = {"left": 0, "right": free, "center": free // 2}[self._aligned[place]]
                runs += [(" " * before, ""), *part, (" " * (free - before), ""), (GAP, "")]
            rows.append(paint(trimmed(runs)))
        return rows

    def _rule(self, widths: Sequence[int]) -> str:
        return paint([(GAP.join("─" * width for width in widths), DIM if self._colored else "")])

    def _as_list(self, cells: Sequence[Sequence[Run]], columns: int) -> list[str]:
        rows: list[str] = []
        for place, (name, cell) in enumerate(zip(self._header, cells, strict=True)):
            mark = "- " if place == 0 else GAP
            for number, part in enumerate(
                _fold_cell([*name, (": ", ""), *cell], max(MIN_CELL_COLUMNS, columns - len(mark)))
            ):
                rows.append(paint([(mark if number == 0 else GAP, ""), *part]))
        return rows


def _fold_cell(runs: Sequence[Run], width: int) -> list[list[Run]]:
    return [cut(runs, start, end) for start, end in tight_spans(text_of(runs), width)]
