"""A reply in Markdown as rows, while it comes.

    text ── lines ── code │ table │ LineRows (prefix, inline) ── rows

A row that is full, or whose line has ended, is finished and never changes. What still grows is one line, or the first
rows of a table, whose columns are not known yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.cli.inline import DIM, LONGEST
from hermes.cli.markdown_code import MarkdownCode
from hermes.cli.markdown_line import LineRows
from hermes.cli.markdown_table import MarkdownTable, alignments, is_row
from hermes.cli.styled import paint

RULE_COLUMNS = 40
FENCE = r"( *)(`{3,}|~{3,})([^`]*)$"
RULE = r" {0,3}([-*_])(?: *\1){2,} *$"
UNDECIDED = r"[> ]*(?:#{0,6} *|\d{1,9}[.)]? *|[-+*_ ]*|`{1,2}|~{1,2}|(?:`{3}|~{3}|\|).*)$"
"""A beginning of a line that may still become anything."""


class Markdown:
    """Makes rows of a reply. `colored` paints; without it signs stay as written, and only the shape is made."""

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
        """Whether something has begun that has not ended."""
        return bool(self._line.strip() or self._header or self._table)

    def feed(self, text: str) -> list[str]:
        """Take the next piece; the rows that are finished by it."""
        *lines, rest = (self._line + text).split("\n")
        finished: list[str] = []
        for line in lines:
            finished += self._end_line(line)
        self._line = rest
        return finished + self._go_on()

    def end(self) -> list[str]:
        """The text is over: the rows that were still growing. The next piece begins a new text."""
        line, self._line = self._line, ""
        finished = self._end_line(line) if line.strip() or self._rows is not None else []
        finished += [*self._end_table(), *self._end_header()]
        self._code = None
        return finished

    def growing(self) -> list[str]:
        """What is to be seen of all that has not ended yet."""
        columns = self._columns()
        rows = self._table.rows(columns) if self._table is not None else []
        if self._header:
            rows += self._rows_of(self._header).end()
        if self._rows is not None:
            rows += self._rows.growing()
        elif self._line.strip():
            rows.append(self._line if self._code is None else self._code.growing(self._line))
        return rows

    def _go_on(self) -> list[str]:
        """Finish what can be of the line that grows."""
        if self._code or self._header or self._table or (self._rows is None and self._may_become_anything()):
            return []
        if self._rows is None:
            self._rows = self._rows_of("")
        return self._rows.grow(self._line)

    def _may_become_anything(self) -> bool:
        return len(self._line) <= LONGEST and re.match(UNDECIDED, self._line) is not None

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
        """A line that nothing before it explains."""
        if not line.strip():
            return [""]
        if len(line) > LONGEST:
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
        """What looked like the header of a table is a line like any other."""
        header, self._header = self._header, ""
        return self._rows_of(header).end() if header else []

    def _rows_of(self, line: str) -> LineRows:
        return LineRows(line, self._columns, colored=self._colored)
