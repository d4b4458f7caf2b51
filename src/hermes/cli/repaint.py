"""A window whose width changes: terminals fold, cut or join what was drawn, each its own way, so it is drawn anew."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes.cli.rows import columns_of

if TYPE_CHECKING:
    from prompt_toolkit.application import Application

KEPT = 500
"""Printed rows that can be shown again: more than any window has."""
CODES = r"\x1b\[[0-9;]*m"
HERE, BACK, EMPTY_ROW, WRAP = "\x1b7", "\x1b8", "\x1b[2K", "\x1b[?7h"


class PrintedRows:
    """The rows above the prompt, printed once and again whenever the window gets another width."""

    def __init__(self, rows: Iterable[str]) -> None:
        self._rows = deque(rows, maxlen=KEPT)

    def add(self, rows: Iterable[str]) -> None:
        """These were printed."""
        self._rows.extend(rows)

    def heed_width(self, app: Application[str]) -> None:
        """Draw anew whatever of them is in the window, before the prompt is drawn in another width."""
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
        shown, height = self._last_that_fit(size.columns, max(1, size.rows - prompt_rows))
        output.write_raw("\r")
        output.cursor_up(min(size.rows, height + 2 * prompt_rows))
        # Row by row: what is erased at once from the top of its window, tmux keeps above it.
        output.write_raw(HERE + f"{EMPTY_ROW}\x1b[B" * size.rows + EMPTY_ROW + BACK + WRAP)
        output.write_raw("".join(f"{row}\r\n" for row in shown))
        output.flush()

    def _last_that_fit(self, columns: int, rows: int) -> tuple[list[str], int]:
        """The last printed rows that have room, and how many rows of the window they take."""
        shown: list[str] = []
        used = 0
        for row in reversed(self._rows):
            used += max(1, -(-columns_of(re.sub(CODES, "", row)) // columns))
            if used > rows:
                return shown, rows
            shown.insert(0, row)
        return shown, used
