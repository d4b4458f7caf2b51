"""When to try again: bounded, with the endpoint's own wish first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from msgspec import Struct

from hermes.llm.events import ModelFailed
from hermes.llm.failures import NATURES


class Retries(Struct, frozen=True):
    """At most `most` further attempts, none after a wait of more than `longest_wait` seconds."""

    most: int = 3
    first_wait: float = 0.5
    longest_wait: float = 60.0

    def wait_after(self, attempt: int, failed: ModelFailed, chance: Callable[[], float]) -> float | None:
        """Seconds until the next attempt, or None to give up, also when the endpoint wishes a longer wait."""
        if attempt > self.most or not NATURES[failed.kind].automatic:
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
