"""Redrawing after the window's width changes: terminals reflow old rows in different ways, so they are drawn anew.

Rows that the terminal has scrolled out of its window may appear twice there: that cannot be detected.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes.cli.rows import columns_of

if TYPE_CHECKING:
    from prompt_toolkit.application import Application

MAX_KEPT_ROWS = 500
"""Printed rows kept for redrawing: more than any window has."""
CODES = r"\x1b\[[0-9;]*m"
TOP, EMPTY_ROW, WRAP = "\x1b[H", "\x1b[2K", "\x1b[?7h"


class PrintedRows:
    """The rows above the prompt, redrawn whenever the window's width changes."""

    def __init__(self, rows: Iterable[str]) -> None:
        self._rows = deque(rows, maxlen=MAX_KEPT_ROWS)
        self._has_window = False

    def add(self, rows: Iterable[str]) -> None:
        self._rows.extend(rows)

    def heed_width(self, app: Application[str]) -> None:
        """Redraw the visible rows before the prompt is drawn at a new width."""
        drawn = app.output.get_size().columns
        erase = app.renderer.erase

        def remember(_: object) -> None:
            nonlocal drawn
            drawn = app.output.get_size().columns

        def erase_or_redraw(leave_alternate_screen: bool = True) -> None:
            if app.output.get_size().columns == drawn:
                erase(leave_alternate_screen)
            else:
                self._redraw(app)
                app.renderer.reset(leave_alternate_screen=leave_alternate_screen)

        app.after_render += remember
        app.renderer.erase = erase_or_redraw  # type: ignore[method-assign]

    def _redraw(self, app: Application[str]) -> None:
        output, size = app.output, app.output.get_size()
        screen = app.renderer.last_rendered_screen
        prompt_rows = screen.height if screen is not None else 1
        shown = self._last_that_fit(size.columns, max(1, size.rows - prompt_rows))
        if not self._has_window and len(shown) == len(self._rows):
            # rows of earlier programs are scrolled out of the window, once
            output.write_raw(f"\x1b[{size.rows};1H" + "\n" * size.rows)
        self._has_window = True
        # row by row: tmux keeps a copy of rows erased at once
        output.write_raw(TOP + f"{EMPTY_ROW}\x1b[B" * size.rows + TOP + WRAP)
        output.write_raw("".join(f"{row}\r\n" for row in shown))
        output.flush()

    def _last_that_fit(self, columns: int, rows: int) -> list[str]:
        """Return the last printed rows that fit."""
        shown: list[str] = []
        used = 0
        for row in reversed(self._rows):
            used += max(1, -(-columns_of(re.sub(CODES, "", row)) // columns))
            if used > rows:
                break
            shown.insert(0, row)
        return shown
