"""How long we wait for an endpoint, and when we try again: bounded, with the endpoint's own wish first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar

from msgspec import Struct

from hermes.errors import SettingsError
from hermes.llm.events import ModelFailed
from hermes.llm.failures import TRIED_AGAIN

T = TypeVar("T")


class Timeouts(Struct, frozen=True):
    """Seconds for: a connection, the first byte of the answer, the gap between two pieces, the gap between two words of
    the reply whatever else comes meanwhile, and all of it."""

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    silence: float = 300.0
    total: float = 1800.0
    named: str = " (`model.timeout`)"
    """Ends a sentence about `first_byte` or `idle`: the setting that they come from."""

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "idle", "silence", "total"):
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


class Retries(Struct, frozen=True):
    """At most `most` further attempts, none after a wait of more than `longest_wait` seconds."""

    most: int = 3
    first_wait: float = 0.5
    longest_wait: float = 60.0

    def wait_after(self, attempt: int, failed: ModelFailed, chance: Callable[[], float]) -> float | None:
        """Seconds until the next attempt, or None to give up, also when the endpoint wishes a longer wait."""
        if attempt > self.most or failed.kind not in TRIED_AGAIN:
            return None
        doubled = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
        wait = max(doubled * (1.0 - 0.5 * chance()), failed.retry_after or 0.0)
        return wait if wait <= self.longest_wait else None


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that the endpoint asks us to wait, from milliseconds, seconds or a date; None if it asks nothing."""
    seconds = _number(headers.get("retry-after-ms"))
    if seconds is not None:
        return seconds / 1000
    raw = headers.get("retry-after")
    seconds = _number(raw)
    return seconds if seconds is not None or raw is None else _until(raw, now)


def _number(raw: str | None) -> float | None:
    try:
        seconds = float(raw or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _until(raw: str, now: float) -> float | None:
    try:
        date = parsedate_to_datetime(raw)
    except ValueError:
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
