"""Tables for people."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from hermes.cli.output import printable, use_color
from hermes.cli.rows import columns_of

LEAST = 12
"""Columns of the screen that a column of the table keeps at least."""
APART = 3
"""Columns of the screen between two of the table."""


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, color: str = "auto", marked: str = ""
) -> None:
    """A table that fits the terminal; when the output is not a terminal nothing is cut or coloured. What the pattern
    `marked` finds in the last column is bold."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colored, at_terminal = use_color(color, os.environ), sys.stdout.isatty()
    shown = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    widths = [max(map(columns_of, cells)) for cells in zip(columns, *shown, strict=True)]
    table = Table(box=box.SIMPLE_HEAD if at_terminal else None, pad_edge=False, header_style="bold")
    room = shutil.get_terminal_size().columns - APART * (len(columns) - 1) - 2
    for column, width in zip(columns, fit_widths(widths, room), strict=True):
        table.add_column(column, overflow="ellipsis", no_wrap=True, width=width if at_terminal else None)
    for row in shown:
        cells = [*map(Text, row)]
        if marked:
            cells[-1].highlight_regex(marked, "bold")
        table.add_row(*cells)
    Console(
        force_terminal=colored,
        color_system="auto" if colored else None,
        width=None if at_terminal else 1000 + 2 * sum(widths),
    ).print(table)


def fit_widths(widths: Sequence[int], room: int) -> list[int]:
    """`widths` cut down to `room`, from the right; the first column names the row and is never cut."""
    fitted = list(widths)
    for place in range(len(fitted) - 1, 0, -1):
        excess = sum(fitted) - room
        if excess > 0:
            fitted[place] = max(min(LEAST, fitted[place]), fitted[place] - excess)
    return fitted
