"""How many wrong codes somebody may type on the sign-in pages."""

from __future__ import annotations

from collections import deque

WRONG_CODES = 5
PER_MICROS = 60_000_000
MAX_ADDRESSES = 1000


class WrongCodes:
    """Counts wrong codes per address over the last minute, in memory."""

    def __init__(self) -> None:
        self._times: dict[str, deque[int]] = {}

    def begin_try(self, address: str, at: int) -> int:
        """Return 0 and count a try, or return how many seconds this address has to wait. A try counts before the code
        is looked at, since many can come at the same moment; `forgive` takes back one that was right."""
        times = self._times.pop(address, deque())
        while times and not at - PER_MICROS < times[0] <= at:  # also what a clock that was set back left behind
            times.popleft()
        if len(self._times) >= MAX_ADDRESSES:
            self._times.pop(next(iter(self._times)))
        self._times[address] = times
        if len(times) >= WRONG_CODES:
            return -(-(times[0] + PER_MICROS - at) // 1_000_000)
        times.append(at)
        return 0

    def forgive(self, address: str) -> None:
        """Take back the newest try."""
        if times := self._times.get(address):
            times.pop()
