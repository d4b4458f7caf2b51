"""How many wrong codes may be typed on the sign-in pages, by anybody: an address could be made up or changed."""

from __future__ import annotations

from collections import deque

MAX_WRONG_CODES = 5
PER_MICROS = 60_000_000


class WrongCodes:
    """The wrong codes of the last minute, in memory."""

    def __init__(self) -> None:
        self._times: deque[int] = deque()

    def begin_try(self, at: int) -> int:
        """Count a try and return 0, or return how many seconds nobody may try. A try counts before the code is looked
        at, since many can come at the same moment; `forgive` takes back one that was right."""
        while self._times and not at - PER_MICROS < self._times[0] <= at:  # also after a clock was set back
            self._times.popleft()
        if len(self._times) >= MAX_WRONG_CODES:
            return -(-(self._times[0] + PER_MICROS - at) // 1_000_000)
        self._times.append(at)
        return 0

    def forgive(self) -> None:
        """Take back the newest try."""
        if self._times:
            self._times.pop()
