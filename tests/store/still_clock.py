"""A clock for tests: it stands still until it is moved."""

from __future__ import annotations


class StillClock:
    """Sleeping moves it at once."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds
