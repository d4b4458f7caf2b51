"""Timeouts and retries for calls to an endpoint. An endpoint's Retry-After is obeyed, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar

from msgspec import Struct

from hermes.errors import SettingsError
from hermes.llm.events import ModelFailed
from hermes.llm.failures import RETRIED_KINDS

T = TypeVar("T")


class Timeouts(Struct, frozen=True):
    """Limits in seconds for connecting, for the first byte of the response, between two chunks (`idle`), between two
    parts of the reply whatever else is sent (`silence`), and in total."""

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    silence: float = 300.0
    total: float = 1800.0
    named: str = " (`model.timeout`)"
    """The setting that `first_byte` and `idle` come from, for the end of an error message."""

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "idle", "silence", "total"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"the timeout `{name}` must be more than 0 seconds")


class BudgetExceeded(Exception):
    """A wait took longer than `seconds`. `is_total` means that the budget of all waits was used up."""

    def __init__(self, seconds: float, *, is_total: bool) -> None:
        super().__init__(f"waited {seconds:g} s")
        self.seconds = seconds
        self.is_total = is_total


class TimeBudget:
    """A time budget for several waits. Only waiting counts, not the time in which the caller is busy."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._left = total

    @property
    def spent(self) -> float:
        return self._total - self._left

    async def wait(self, awaitable: Awaitable[T], limit: float) -> T:
        """Return the result of `awaitable`. Raises BudgetExceeded after `limit` seconds, or when the total is used
        up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        timeout = asyncio.timeout(max(0.0, min(limit, self._left)))
        try:
            async with timeout:
                return await awaitable
        except TimeoutError as error:
            if not timeout.expired():
                raise
            is_total = limit > self._left
            raise BudgetExceeded(self._total if is_total else limit, is_total=is_total) from error
        finally:
            self._left -= loop.time() - began


class Retries(Struct, frozen=True):
    """Up to `max_retries` retries after exponentially growing waits, none longer than `max_wait_seconds`."""

    max_retries: int = 3
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 60.0

    def wait_after(self, attempt: int, failed: ModelFailed, chance: Callable[[], float]) -> float | None:
        """Return the seconds until the next attempt, or None to give up. An endpoint that asks for a longer wait means
        giving up."""
        if attempt > self.max_retries or failed.kind not in RETRIED_KINDS:
            return None
        doubled = min(self.max_wait_seconds, self.first_wait_seconds * 2.0 ** min(attempt - 1, 30))
        wait = max(doubled * (1.0 - 0.5 * chance()), failed.retry_after or 0.0)
        return wait if wait <= self.max_wait_seconds else None


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait that the endpoint asks for (milliseconds, seconds or a date) in seconds; None if it asks for
    none."""
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
