"""Time, passed in: no other module asks the system for it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. Tests pass one that stands still or jumps."""

    def now(self) -> float:
        """Return the time in Unix seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
