"""A clock that tests move by hand. Sleepers wake in order of time, and nobody waits for real."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class HandClock:
    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        waking = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), waking))
        await waking

    def set_back(self, seconds: float) -> None:
        """Set the clock back; sleepers sleep as long as before."""
        self._now -= seconds
        self._sleepers = [(at - seconds, number, waking) for at, number, waking in self._sleepers]

    async def pass_time(self, seconds: float = 0.0) -> None:
        """Let this much time pass, and run everything that becomes ready at each moment."""
        until = self._now + seconds
        await self._rest()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, waking = heapq.heappop(self._sleepers)
            if not waking.done():
                waking.set_result(None)
                await self._rest()
        self._now = until

    async def _rest(self) -> None:
        """Wait until no task is ready to run."""
        ready = vars(asyncio.get_running_loop())["_ready"]
        while ready:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
