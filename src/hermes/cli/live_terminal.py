"""The terminal below a prompt that stays: its keys and its output."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

IS_PRINTING: ContextVar[bool] = ContextVar("is_printing", default=False)
"""Whether the terminal is taken from the prompt only to print rows above it."""


def make_input() -> Input:
    """The keys. Printing rows leaves them as they are: a terminal that takes whole lines, if only for a moment, shows
    what is typed in that moment a second time and swallows Ctrl-D."""
    from prompt_toolkit.input import create_input

    keys = create_input()
    take_lines = keys.cooked_mode

    def cooked_mode() -> AbstractContextManager[None]:
        return nullcontext() if IS_PRINTING.get() else take_lines()

    keys.cooked_mode = cooked_mode  # type: ignore[method-assign]
    return keys


def make_output() -> Output:
    """The terminal. It is not asked where the cursor is: then the prompt takes the rows that it needs and no more, and
    a window that is resized has little to draw anew."""
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = create_output()
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output
