"""A clock for tests that moves only when someone sleeps, and then at once."""

from __future__ import annotations


class SteadyClock:
    """A clock that records every sleep."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.time = now
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds
