"""A tool call as one row: its name, short arguments, and outcome."""

from __future__ import annotations

import json
from contextlib import suppress

from msgspec import Struct

from hermes.cli.output import printable
from hermes.cli.rows import columns_of, head
from hermes.types import Json

MAX_REASON_COLUMNS = 60
"""Longer failure reasons are cut."""


class ToolRow(Struct):
    """A tool call that started at `begun`, in the caller's clock."""

    name: str
    arguments: str
    begun: float
    progress: str = ""

    def running(self, now: float, columns: int) -> str:
        """Return the row of a running call: its progress and elapsed time."""
        return self._row(self.progress or short(self.arguments), f"… {now - self.begun:.0f} s", columns)

    def finished(self, result: str, ok: bool, now: float, columns: int) -> str:
        reason = "" if ok else f": {head(printable(result), MAX_REASON_COLUMNS)}"
        return self._row(short(self.arguments), f"{'✓' if ok else '✗'} {now - self.begun:.1f} s{reason}", columns)

    def _row(self, middle: str, end: str, columns: int) -> str:
        """Return the row; its middle part is cut if it is too long."""
        name = f"· {printable(self.name)}"
        room = columns - columns_of(name) - columns_of(end) - 2
        return head(f"{name} {head(printable(middle), room) if room > 1 else ''} {end}", columns)


def short(arguments: str) -> str:
    """Return a call's arguments without JSON punctuation, or unchanged if they are not a JSON object."""
    with suppress(ValueError, RecursionError):
        values: Json = json.loads(arguments)
        if isinstance(values, dict):
            return ", ".join(f"{name}: {_text(value)}" for name, value in values.items())
    return arguments


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
