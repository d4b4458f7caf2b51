"""Plain text as rows: broken between words, except code, which stays whole so that it can be copied."""

from __future__ import annotations

from collections.abc import Callable

from hermes.cli.rows import fold

FENCE = "```"


class PlainText:
    """Renders a streamed text as rows."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._line = ""
        self._fenced = False

    @property
    def is_growing(self) -> bool:
        """True while a row is unfinished."""
        return bool(self._line)

    def feed(self, text: str) -> list[str]:
        """Add text; return the rows that became final."""
        *lines, rest = (self._line + text).split("\n")
        finished: list[str] = []
        for line in lines:
            self._line = line
            finished += [*self._full(), self._line]
            if self._line.lstrip().startswith(FENCE):
                self._fenced = not self._fenced
        self._line = rest
        return finished + self._full()

    def end(self) -> list[str]:
        """End the text and return the unfinished row. The next piece starts a new text."""
        line, self._line, self._fenced = self._line, "", False
        return [line] if line else []

    def growing(self) -> list[str]:
        """Return the unfinished row."""
        return [self._line.rstrip()] if self._line.strip() else []

    def _full(self) -> list[str]:
        if self._fenced or self._line.lstrip().startswith(FENCE):
            return []
        rows, self._line = fold(self._line, self._columns())
        return rows
