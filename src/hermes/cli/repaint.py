"""A window whose width changes: terminals fold, cut or join what was drawn, each its own way, so it is drawn anew.

Rows that a terminal has moved above its window meanwhile may be there a second time: that cannot be seen from here.
"""

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
TOP, EMPTY_ROW, WRAP = "\x1b[H", "\x1b[2K", "\x1b[?7h"


class PrintedRows:
    """The rows above the prompt, printed once and again whenever the window gets another width."""

    def __init__(self, rows: Iterable[str]) -> None:
        self._rows = deque(rows, maxlen=KEPT)
        self._has_window = False

    def add(self, rows: Iterable[str]) -> None:
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
        shown = self._last_that_fit(size.columns, max(1, size.rows - prompt_rows))
        if not self._has_window and len(shown) == len(self._rows):
            # What others left in the window is moved above it, once.
            output.write_raw(f"\x1b[{size.rows};1H" + "\n" * size.rows)
        self._has_window = True
        # Row by row: what is erased at once, tmux keeps above the window.
        output.write_raw(TOP + f"{EMPTY_ROW}\x1b[B" * size.rows + TOP + WRAP)
        output.write_raw("".join(f"{row}\r\n" for row in shown))
        output.flush()

    def _last_that_fit(self, columns: int, rows: int) -> list[str]:
        """The last printed rows that there is room for."""
        shown: list[str] = []
        used = 0
        for row in reversed(self._rows):
            used += max(1, -(-columns_of(re.sub(CODES, "", row)) // columns))
            if used > rows:
                break
            shown.insert(0, row)
        return shown
