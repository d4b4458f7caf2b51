"""A tool call as one row: its name, its arguments in short, and how it went."""

from __future__ import annotations

import json
from contextlib import suppress

from msgspec import Struct

from hermes.cli.output import printable
from hermes.cli.rows import columns_of, head
from hermes.types import Json

REASON = 60
"""Columns that the reason of a failure takes at most."""


class ToolRow(Struct):
    """A call that was begun at `begun`, on the clock of whoever asks for its row."""

    name: str
    arguments: str
    begun: float
    progress: str = ""

    def running(self, now: float, columns: int) -> str:
        """While it runs: what it does last, and for how long."""
        return self._row(self.progress or short(self.arguments), f"… {now - self.begun:.0f} s", columns)

    def finished(self, result: str, ok: bool, now: float, columns: int) -> str:
        reason = "" if ok else f": {head(printable(result), REASON)}"
        return self._row(short(self.arguments), f"{'✓' if ok else '✗'} {now - self.begun:.1f} s{reason}", columns)

    def _row(self, middle: str, end: str, columns: int) -> str:
        """What is in the middle gives way."""
        name = f"· {printable(self.name)}"
        room = columns - columns_of(name) - columns_of(end) - 2
        return head(f"{name} {head(printable(middle), room) if room > 1 else ''} {end}", columns)


def short(arguments: str) -> str:
    """The arguments of a call without the signs of JSON; as they are when they are no JSON object."""
    with suppress(ValueError, RecursionError):
        values: Json = json.loads(arguments)
        if isinstance(values, dict):
            return ", ".join(f"{name}: {_text(value)}" for name, value in values.items())
    return arguments


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
