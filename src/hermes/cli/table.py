"""Tables for people."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from hermes.cli.output import printable, use_color
from hermes.cli.rows import columns_of

MIN_COLUMN_WIDTH = 24
"""Least width of a table column; with less, each row becomes a block."""
GAP_COLUMNS = 3
"""Gap between two table columns."""
INDENT = "    "


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, color: str = "auto", marked: str = ""
) -> None:
    """Print a table that fits the terminal: long cells are cut, except in the first column, which names the row. On
    narrow terminals each row becomes a block of lines with nothing cut. Without a terminal nothing is cut or coloured.
    Matches of the pattern `marked` in the last column are bold."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colored, at_terminal = use_color(color, os.environ), sys.stdout.isatty()
    shown = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    widths = [max(map(columns_of, cells)) for cells in zip(columns, *shown, strict=True)]
    screen = shutil.get_terminal_size().columns
    console = Console(
        force_terminal=colored,
        color_system="auto" if colored else None,
        width=screen if at_terminal else 1000 + 2 * sum(widths),
        highlight=False,
    )
    fitted = fit_widths(widths, screen - GAP_COLUMNS * (len(columns) - 1) - 2)
    if at_terminal and fitted is None:
        for row in shown:
            for line in block(columns, row, screen):
                text = Text(line, no_wrap=True, overflow="ignore")
                if marked:
                    text.highlight_regex(marked, "bold")
                console.print(text, crop=False)
        return
    table = Table(box=box.SIMPLE_HEAD if at_terminal else None, pad_edge=False, header_style="bold")
    for column, width in zip(columns, fitted or widths, strict=True):
        table.add_column(column, overflow="ellipsis", no_wrap=True, width=width if at_terminal else None)
    for row in shown:
        cells = [*map(Text, row)]
        if marked:
            cells[-1].highlight_regex(marked, "bold")
        table.add_row(*cells)
    console.print(table)


def fit_widths(widths: Sequence[int], room: int) -> list[int] | None:
    """Return `widths` cut down to `room`, widest first but never the first column; None if too little would be left."""
    fitted = list(widths)
    while (excess := sum(fitted) - room) > 0:
        widest = max(range(1, len(fitted)), key=lambda place: fitted[place], default=0)
        if widest == 0 or fitted[widest] <= MIN_COLUMN_WIDTH:
            return None
        rest = max([MIN_COLUMN_WIDTH, *(fitted[place] for place in range(1, len(fitted)) if place != widest)])
        fitted[widest] = max(fitted[widest] - excess, min(rest, fitted[widest] - 1))
    return fitted


def block(columns: Sequence[str], row: Sequence[str], screen: int) -> list[str]:
    """Return a row as lines: short cells side by side, a long one on its own lines. A count is followed by its column's
    name."""
    lines = [row[0]]
    named = zip(columns[1:], row[1:], strict=True)
    for cell in [f"{cell} {name}" if cell.isdigit() and name.endswith("s") else cell for name, cell in named if cell]:
        if columns_of(lines[-1]) + 2 + columns_of(cell) <= screen:
            lines[-1] += f"  {cell}"
        else:
            lines += _wrapped(cell, screen)
    return lines


def _wrapped(text: str, screen: int) -> list[str]:
    """Return `text` in indented lines; words longer than a line stay whole."""
    lines = [INDENT]
    for word in text.split():
        blank = "" if lines[-1] == INDENT else " "
        if blank and columns_of(lines[-1]) + 1 + columns_of(word) > screen:
            lines.append(INDENT)
            blank = ""
        lines[-1] += blank + word
    return lines
