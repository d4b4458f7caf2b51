"""How many wrong codes somebody may type on the sign-in pages."""

from __future__ import annotations

import time
from collections import deque

WRONG_CODES = 5
PER_SECONDS = 60.0
MAX_ADDRESSES = 1000


class WrongCodes:
    """Counts wrong codes per address over the last minute, in memory."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def begin_try(self, address: str) -> int:
        """Return 0 and count a try, or return how many seconds this address has to wait. A try counts before the code
        is looked at, since many can come at the same moment; `forgive` takes back one that was right."""
        now = time.monotonic()
        times = self._times.pop(address, deque())
        while times and times[0] <= now - PER_SECONDS:
            times.popleft()
        if len(self._times) >= MAX_ADDRESSES:
            self._times.pop(next(iter(self._times)))
        self._times[address] = times
        if len(times) >= WRONG_CODES:
            return max(1, round(times[0] + PER_SECONDS - now))
        times.append(now)
        return 0

    def forgive(self, address: str) -> None:
        """Take back the newest try."""
        if times := self._times.get(address):
            times.pop()
