"""Input and output of the terminal for the live prompt."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

IS_PRINTING: ContextVar[bool] = ContextVar("is_printing", default=False)
"""True while the prompt is suspended only to print rows above it."""


def make_input() -> Input:
    """Return the keyboard input. The terminal mode stays raw while rows are printed: cooked mode, even for a moment,
    would echo typed keys twice and swallow Ctrl-D."""
    from prompt_toolkit.input import create_input

    keys = create_input()
    take_lines = keys.cooked_mode

    def cooked_mode() -> AbstractContextManager[None]:
        return nullcontext() if IS_PRINTING.get() else take_lines()

    keys.cooked_mode = cooked_mode  # type: ignore[method-assign]
    return keys


def make_output() -> Output:
    """Return the terminal output. The cursor position is never queried: the prompt then takes only the rows it needs,
    and resizing redraws little."""
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output
