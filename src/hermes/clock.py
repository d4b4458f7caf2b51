"""Time, passed in: the rest of the house never asks the system for it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time. Tests pass one that stands still or jumps."""

    def now(self) -> float:
        """Unix seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
