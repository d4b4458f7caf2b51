"""Command output: lines for people, JSON for programs, one line per error.

Tables for people.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

from hermes.cli.own_name import advise
from hermes.cli.rows import columns_of, fold, hang
from hermes.errors import HermesError
from hermes.redaction import hide_passwords
from hermes.types import Json, Session

DIRECTION_CONTROLS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Unicode direction controls: they could make a line look like another one."""
CONTROL = {code: None for code in (*range(32), *range(127, 160), *DIRECTION_CONTROLS) if code not in (9, 10)}

QUIET_SECONDS, PROGRESS_SECONDS = 0.5, 10.0
"""Delay before the first progress line, and interval between further ones."""
MAX_EPOCH_SECONDS = 32503680000.0
"""The year 3000; some platforms cannot format later dates."""


def printable(text: str) -> str:
    """Return `text` without control and direction characters, so that stored text cannot manipulate the terminal or
    imitate other output."""
    return text.translate(CONTROL)


def say(text: str = "") -> None:
    """Write one line to standard output."""
    sys.stdout.write(f"{text}\n")


def say_advice(text: str) -> None:
    """Write advice to standard output, wrapped like `note`."""
    say(_advice(text, sys.stdout))


def note(text: str) -> None:
    """Write one line to standard error: progress, notices and advice, never the result. At a terminal it is wrapped
    between words; a two-column line wraps within its second column."""
    sys.stderr.write(f"{_advice(text, sys.stderr)}\n")
    sys.stderr.flush()


def _advice(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return advise(text)
    columns = shutil.get_terminal_size().columns
    rows: list[str] = []
    for line in (row for given in advise(text).split("\n") for row in hang(given, columns).split("\n")):
        full, rest = fold(line, columns)
        rows += [*full, rest]
    return "\n".join(rows)


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Print `what` to standard error if the block takes longer than a moment, then the elapsed time at intervals."""
    begun, is_over = time.monotonic(), threading.Event()

    def print_progress() -> None:
        if is_over.wait(QUIET_SECONDS):
            return
        note(f"{what} …")
        while not is_over.wait(PROGRESS_SECONDS):
            note(f"{what} … ({time.monotonic() - begun:.0f} s)")

    telling = threading.Thread(target=print_progress, daemon=True)
    telling.start()
    try:
        yield
    finally:
        is_over.set()
        telling.join()


def use_color(setting: str, env: Mapping[str, str]) -> bool:
    """Return True if `display.color` wants colours. With `auto`: at a terminal that supports them, unless NO_COLOR is
    set."""
    if setting != "auto":
        return setting == "always"
    return sys.stdout.isatty() and env.get("TERM") != "dumb" and not env.get("NO_COLOR")


def can_redraw() -> bool:
    """Return True if standard output is a terminal whose rows can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def print_json(value: Json) -> None:
    """Print the result as JSON."""
    say(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_error(error: HermesError) -> None:
    """Print an error as one line."""
    note(f"hermes: {hide_passwords(printable(error.line()))}")


def show_time(seconds: float) -> str:
    """Format a time in the local time zone."""
    return f"{datetime.fromtimestamp(min(max(seconds, 0.0), MAX_EPOCH_SECONDS)):%Y-%m-%d %H:%M}"


def session_head(session: Session) -> str:
    """Return the heading of a session: id, source, start, title."""
    title = printable(session.title or "(no title)")
    return f"{session.id} · {session.source} · {show_time(session.started_at)} · {title}"


def one_line(text: str, width: int) -> str:
    """Return `text` on one line, cut to `width` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


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
