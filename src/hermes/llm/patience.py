"""How long we wait for an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from msgspec import Struct

from hermes.errors import SettingsError

T = TypeVar("T")


class Timeouts(Struct, frozen=True):
    """Seconds for: a connection, the first byte of the answer, the gap between two pieces, the gap between two words of
    the reply whatever else comes meanwhile, and all of it."""

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    silence: float = 300.0
    total: float = 1800.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise SettingsError(f"the time-out '{name}' is not more than 0 seconds")


class OutOfPatience(Exception):
    """The wait was longer than `seconds`: this one alone, or all of them together."""

    def __init__(self, seconds: float, *, together: bool) -> None:
        super().__init__(f"waited {seconds:g} s")
        self.seconds = seconds
        self.together = together


class Patience:
    """Counts down `total` over several waits. Only waiting counts, not the time in which our caller is busy."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._left = total

    @property
    def spent(self) -> float:
        """Seconds that were waited so far."""
        return self._total - self._left

    async def wait(self, awaitable: Awaitable[T], limit: float) -> T:
        """What `awaitable` gives, or OutOfPatience after `limit` seconds or when the total is used up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        timeout = asyncio.timeout(max(0.0, min(limit, self._left)))
        try:
            async with timeout:
                return await awaitable
        except TimeoutError as error:
            if not timeout.expired():
                raise
            together = limit > self._left
            raise OutOfPatience(self._total if together else limit, together=together) from error
        finally:
            self._left -= loop.time() - began
