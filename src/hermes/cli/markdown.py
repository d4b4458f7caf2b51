"""Streaming Markdown: turn a growing reply into terminal rows.

    text ── lines ── code │ table │ LineRows (prefix, inline) ── rows

A row is final once it is full or its line has ended. Only the last line may still change, or the first rows of a table
whose column widths are not known yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.cli.inline import DIM, MAX_LINE_CHARS
from hermes.cli.markdown_code import MarkdownCode
from hermes.cli.markdown_line import LineRows
from hermes.cli.markdown_table import MarkdownTable, alignments, is_row
from hermes.cli.styled import paint

RULE_COLUMNS = 40
FENCE = r"( *)(`{3,}|~{3,})([^`]*)$"
RULE = r" {0,3}([-*_])(?: *\1){2,} *$"
UNDECIDED = r"[> ]*(?:#{0,6} *|\d{1,9}[.)]? *|[-+*_ ]*|`{1,2}|~{1,2}|(?:`{3}|~{3}|\|).*)$"
"""The start of a line whose kind is not decided yet."""


class Markdown:
    """Renders a reply as rows. With `colored` Markdown is styled; without it the markup stays and only the layout is
    applied."""

    def __init__(self, columns: Callable[[], int], *, colored: bool) -> None:
        self._columns = columns
        self._colored = colored
        self._line = ""
        self._rows: LineRows | None = None
        self._code: MarkdownCode | None = None
        self._header = ""
        self._table: MarkdownTable | None = None

    @property
    def is_growing(self) -> bool:
        """True while a line, table or header is unfinished."""
        return bool(self._line.strip() or self._header or self._table)

    def feed(self, text: str) -> list[str]:
        """Add text; return the rows that became final."""
        *lines, rest = (self._line + text).split("\n")
        finished: list[str] = []
        for line in lines:
            finished += self._end_line(line)
        self._line = rest
        return finished + self._grow_line()

    def end(self) -> list[str]:
        """End the text and return the remaining rows. The next piece starts a new text."""
        line, self._line = self._line, ""
        finished = self._end_line(line) if line.strip() or self._rows is not None else []
        finished += [*self._end_table(), *self._end_header()]
        self._code = None
        return finished

    def growing(self) -> list[str]:
        """Return the rows of the unfinished part, as they look now."""
        columns = self._columns()
        rows = self._table.rows(columns) if self._table is not None else []
        if self._header:
            rows += self._rows_of(self._header).end()
        if self._rows is not None:
            rows += self._rows.growing()
        elif self._line.strip():
            rows.append(self._line if self._code is None else self._code.growing(self._line))
        return rows

    def _grow_line(self) -> list[str]:
        """Return the rows of the growing line that are final."""
        if self._code or self._header or self._table or (self._rows is None and self._is_undecided()):
            return []
        if self._rows is None:
            self._rows = self._rows_of("")
        return self._rows.grow(self._line)

    def _is_undecided(self) -> bool:
        return len(self._line) <= MAX_LINE_CHARS and re.match(UNDECIDED, self._line) is not None

    def _end_line(self, line: str) -> list[str]:
        if self._code is not None:
            return [self._add_code(line, self._code)]
        if self._rows is not None:
            rows, self._rows = self._rows, None
            return [*rows.grow(line), *rows.end()]
        if self._table is not None and is_row(line):
            return self._table.add(line, self._columns())
        if self._header and (aligned := alignments(line, self._header)):
            self._table, self._header = MarkdownTable(self._header, aligned, colored=self._colored), ""
            return []
        return [*self._end_table(), *self._end_header(), *self._begin_block(line)]

    def _begin_block(self, line: str) -> list[str]:
        """Start a new block with `line`."""
        if not line.strip():
            return [""]
        if len(line) > MAX_LINE_CHARS:
            return self._rows_of(line).end()
        if fence := re.match(FENCE, line):
            self._code = MarkdownCode(fence, colored=self._colored)
            return [self._code.first_row]
        if is_row(line):
            self._header = line
            return []
        if re.match(RULE, line):
            return [paint([("─" * min(RULE_COLUMNS, self._columns()), DIM)])] if self._colored else [line.strip()]
        return self._rows_of(line).end()

    def _add_code(self, line: str, code: MarkdownCode) -> str:
        row = code.add(line)
        if code.is_over:
            self._code = None
        return row

    def _end_table(self) -> list[str]:
        table, self._table = self._table, None
        return table.end(self._columns()) if table is not None else []

    def _end_header(self) -> list[str]:
        """Render a presumed table header as an ordinary line."""
        header, self._header = self._header, ""
        return self._rows_of(header).end() if header else []

    def _rows_of(self, line: str) -> LineRows:
        return LineRows(line, self._columns, colored=self._colored)
