"""A Markdown code block as rows, while it is streamed."""

from __future__ import annotations

import re

from hermes.cli.code_colors import MAX_ROW_CHARS, colors_for
from hermes.cli.inline import CODE, DIM
from hermes.cli.styled import paint


class MarkdownCode:
    """Renders a code block line by line. Rows keep their text, without the fence's indent, so that they can be copied.
    Known languages are highlighted."""

    def __init__(self, fence: re.Match[str], *, colored: bool) -> None:
        self._indent, self._mark = fence[1], fence[2]
        self._colored = colored
        self._colors = colors_for(fence[3]) if colored else None
        self.first_row = self._fence_row(fence[0])
        self.is_over = False

    def add(self, line: str) -> str:
        """Return the row for `line`; a closing fence ends the block."""
        if line.strip().startswith(self._mark) and not line.strip().strip(self._mark[0]):
            self.is_over = True
            return self._fence_row(line)
        row = line.removeprefix(self._indent)
        runs = [(row, self._style)] if self._colors is None else self._colors.end_row(row)
        return paint(runs) if row.strip() else ""

    def growing(self, line: str) -> str:
        """Return the row for an unfinished line; of an overlong one, its end."""
        row = line.removeprefix(self._indent)
        if len(row) > MAX_ROW_CHARS:
            return paint([("…", DIM if self._colored else ""), (row[-MAX_ROW_CHARS:], self._style)])
        return paint([(row, self._style)] if self._colors is None else self._colors.growing(row))

    @property
    def _style(self) -> str:
        return CODE if self._colored and self._colors is None else ""

    def _fence_row(self, line: str) -> str:
        return paint([(line.strip(), DIM if self._colored else "")])
