"""A deadline for calls to a plugin."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from hermes.clock import Clock


class Deadline(Struct, frozen=True):
    """One moment on two clocks: that of the running loop, by which the host waits, and the store's, which plugins
    see."""

    loop_time: float
    wall_time: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        return cls(asyncio.get_running_loop().time() + seconds, clock.now() + seconds)

    def seconds_left(self) -> float:
        """Return the remaining seconds; 0 after the deadline."""
        return max(0.0, self.loop_time - asyncio.get_running_loop().time())
