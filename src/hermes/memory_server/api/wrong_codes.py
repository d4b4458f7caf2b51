"""A limit on wrong codes typed on the sign-in pages. It counts all clients together, since addresses can be forged."""

from __future__ import annotations

from collections import deque

MAX_WRONG_CODES = 5
PER_MICROS = 60_000_000


class WrongCodes:
    """The wrong codes of the last minute, in memory."""

    def __init__(self) -> None:
        self._times: deque[int] = deque()

    def begin_try(self, at: int) -> int:
        """Count an attempt and return 0, or return for how many seconds attempts are refused. An attempt counts before
        the code is checked, since many may arrive at once; call `forgive` if the code was right."""
        while self._times and not at - PER_MICROS < self._times[0] <= at:  # also if the clock was set back
            self._times.popleft()
        if len(self._times) >= MAX_WRONG_CODES:
            return -(-(self._times[0] + PER_MICROS - at) // 1_000_000)
        self._times.append(at)
        return 0

    def forgive(self) -> None:
        """Remove the newest attempt."""
        if self._times:
            self._times.pop()
