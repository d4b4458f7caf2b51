"""Isolation: an item that may be the cause of crashes is handled while no other lane of the process runs.

Other lanes go first: such an item waits until nothing runs, for at most HOLD_SECONDS. After that no new lane begins
until the item had its turn. If running lanes have not ended after HOLD_SECONDS more, it is handled beside them, and a
crash does not count against it.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from hermes.db.queue import Claim

HOLD_SECONDS = 10.0
MAX_ALONE_SECONDS = 60.0
"""Maximum time that other lanes wait for an item that is handled alone."""


class Taken(Struct, frozen=True):
    """Lanes that a worker has claimed. `put_off` is the lane of a suspect item that could not begin."""

    claims: list[Claim]
    is_alone: bool = False
    put_off: str | None = None


class Isolation:
    """The running lanes of one process, over all workers of one store."""

    def __init__(self) -> None:
        self.taking = asyncio.Lock()
        """Held while lanes are claimed, so that two workers do not begin at the same time."""
        self.running = 0
        self.alone: Claim | None = None
        self.wakes: list[asyncio.Event] = []
        self._since = 0.0
        self._waiting: tuple[str, str] | None = None

    def admits(self, queue: str, now: float) -> bool:
        """Return False while lanes of `queue` must not begin."""
        waited = abs(now - self._since)  # a clock that was set back must not prolong it
        if self.alone is not None:
            return self.alone.queue == queue and waited >= MAX_ALONE_SECONDS
        if self._waiting is None or not HOLD_SECONDS <= waited < 2 * HOLD_SECONDS:
            return True
        return self._waiting[0] == queue and self.running == 0

    def overdue_lane(self, queue: str, now: float) -> str | None:
        """Return the lane of `queue` that has waited too long to be handled alone."""
        if self._waiting is None or self._waiting[0] != queue or now - self._since < HOLD_SECONDS:
            return None
        return self._waiting[1]

    def begin(self, queue: str, taken: Taken, now: float) -> None:
        """Record a worker's claims."""
        self.alone = taken.claims[0] if taken.is_alone else None
        if taken.is_alone:
            self._since, self._waiting = now, None
        elif taken.put_off is not None and self._waiting is None:
            self._since, self._waiting = now, (queue, taken.put_off)
        elif taken.put_off is None and self._waiting is not None and self._waiting[0] == queue:
            self._waiting = None

    def end(self, claimed: Claim) -> None:
        """Record the end of a lane's work."""
        self.running -= 1
        if self.alone is claimed:
            self.alone = None
            for wake in self.wakes:
                wake.set()
