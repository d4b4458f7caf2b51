"""A block of code within Markdown, as rows while it comes."""

from __future__ import annotations

import re

from hermes.cli.code_colors import LONGEST_ROW, colors_for
from hermes.cli.inline import CODE, DIM
from hermes.cli.styled import paint


class MarkdownCode:
    """Grows by a line at a time. Rows stay as they were written, but for the indent of the fence: they can be
    copied. In a language that is known they have its colours."""

    def __init__(self, fence: re.Match[str], *, colored: bool) -> None:
        self._indent, self._mark = fence[1], fence[2]
        self._colored = colored
        self._colors = colors_for(fence[3]) if colored else None
        self.first_row = self._fence_row(fence[0])
        self.is_over = False

    def add(self, line: str) -> str:
        """The row of one more line; a fence ends the block."""
        if line.strip().startswith(self._mark) and not line.strip().strip(self._mark[0]):
            self.is_over = True
            return self._fence_row(line)
        row = line.removeprefix(self._indent)
        runs = [(row, self._style)] if self._colors is None else self._colors.end_row(row)
        return paint(runs) if row.strip() else ""

    def growing(self, line: str) -> str:
        """What is to be seen of a line that has not ended; of an endless one its end."""
        row = line.removeprefix(self._indent)
        if len(row) > LONGEST_ROW:
            return paint([("…", DIM if self._colored else ""), (row[-LONGEST_ROW:], self._style)])
        return paint([(row, self._style)] if self._colors is None else self._colors.growing(row))

    @property
    def _style(self) -> str:
        return CODE if self._colored and self._colors is None else ""

    def _fence_row(self, line: str) -> str:
        return paint([(line.strip(), DIM if self._colored else "")])
