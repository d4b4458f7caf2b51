"""A clock that only the test moves; sleepers wait for it."""

from __future__ import annotations

import asyncio


class HandClock:
    """Stands still until `advance`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self.slept = asyncio.Event()
        """Set as soon as a task sleeps."""

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._sleepers.append((self._now + seconds, woken))
        self.slept.set()
        await woken.wait()

    async def sleeper(self, seconds: float) -> None:
        """Return as soon as a task sleeps until this long from now."""
        while not any(when == self._now + seconds for when, _ in self._sleepers):
            self.slept.clear()
            await self.slept.wait()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass and wake the tasks whose sleep ended."""
        self._now += seconds
        due = [woken for when, woken in self._sleepers if when <= self._now]
        self._sleepers = [entry for entry in self._sleepers if entry[0] > self._now]
        for woken in due:
            woken.set()
