"""Tables for people."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from hermes.cli.output import printable, use_color
from hermes.cli.rows import columns_of

LEAST = 24
"""Columns of the screen that the last column of a table keeps at least; with fewer there are blocks instead."""
APART = 3
"""Columns of the screen between two of the table."""
INDENT = "    "


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, color: str = "auto", marked: str = ""
) -> None:
    """A table that fits the terminal: only the last column is ever cut, and where that is not enough each row is a
    block of lines with nothing cut at all. Without a terminal nothing is cut or coloured. What the pattern `marked`
    finds in the last column is bold."""
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
    last = last_width(widths, screen)
    if at_terminal and last is None:
        for row in shown:
            for line in block(columns, row, screen):
                text = Text(line, no_wrap=True, overflow="ignore")
                if marked and line.startswith(INDENT):
                    text.highlight_regex(marked, "bold")
                console.print(text, crop=False)
        return
    table = Table(box=box.SIMPLE_HEAD if at_terminal else None, pad_edge=False, header_style="bold")
    for column, width in zip(columns, [*widths[:-1], last], strict=True):
        table.add_column(column, overflow="ellipsis", no_wrap=True, width=width if at_terminal else None)
    for row in shown:
        cells = [*map(Text, row)]
        if marked:
            cells[-1].highlight_regex(marked, "bold")
        table.add_row(*cells)
    console.print(table)


def last_width(widths: Sequence[int], screen: int) -> int | None:
    """How wide the last column may be when all others are whole; None when that is too little to read."""
    room = screen - sum(widths[:-1]) - APART * (len(widths) - 1) - 2
    return min(widths[-1], room) if room >= min(LEAST, widths[-1]) else None


def block(columns: Sequence[str], row: Sequence[str], screen: int) -> list[str]:
    """A row as lines: its cells side by side as far as they fit, and the last one below them. A count has its column's
    name beside it."""
    lines = [row[0]]
    named = zip(columns[1:-1], row[1:-1], strict=True)
    for cell in [f"{cell} {name}" if cell.isdigit() and name.endswith("s") else cell for name, cell in named if cell]:
        if columns_of(lines[-1]) + 2 + columns_of(cell) <= screen:
            lines[-1] += f"  {cell}"
        else:
            lines += _wrapped(cell, screen)
    return [*lines, *(_wrapped(row[-1], screen) if len(row) > 1 and row[-1] else [])]


def _wrapped(text: str, screen: int) -> list[str]:
    """`text` in indented lines; a word that is longer than a line stays whole."""
    lines = [INDENT]
    for word in text.split():
        blank = "" if lines[-1] == INDENT else " "
        if blank and columns_of(lines[-1]) + 1 + columns_of(word) > screen:
            lines.append(INDENT)
            blank = ""
        lines[-1] += blank + word
    return lines
