"""Times are integers, in microseconds since 1970 UTC; on the wire RFC 3339 with a `Z`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hermes.clock import Clock
from hermes.memory_server.faults import Invalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN_EPOCH = EPOCH.replace(tzinfo=None)
MICROSECOND = timedelta(microseconds=1)
EARLIEST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def now(clock: Clock) -> int:
    return round(clock.now() * 1_000_000)


def to_micros(moment: datetime) -> int:
    """Convert a moment to microseconds; without a zone it is UTC. Raise Invalid outside the years 1 to 9999 UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    micros = (aware - EPOCH) // MICROSECOND
    if not EARLIEST <= micros <= LATEST:
        raise Invalid(f"{moment.isoformat()} is outside the years 1 to 9999 in UTC")
    return micros


def to_wire(micros: int) -> str:
    """Format a time as `2026-11-15T04:05:48.100154Z`; a whole second has no fraction."""
    return f"{(PLAIN_EPOCH + timedelta(0, 0, micros)).isoformat()}Z"  # with a zone it would take twice as long


def from_day(day: date) -> int:
    """Return the first moment of a day in UTC."""
    return to_micros(datetime(day.year, day.month, day.day, tzinfo=UTC))


def to_day(micros: int) -> date:
    """Return the day of a moment in UTC."""
    return (PLAIN_EPOCH + timedelta(microseconds=micros)).date()


def to_wire_seconds(micros: int) -> str:
    """Format a time as `to_wire` does, without a fraction."""
    return to_wire(micros - micros % 1_000_000)


def to_stamp(micros: int) -> str:
    """Format a time as `2026-11-15 04:05:48`, for people who read a representation."""
    return (PLAIN_EPOCH + timedelta(microseconds=micros)).isoformat(sep=" ", timespec="seconds")


def parse(text: str) -> int:
    """Parse an ISO time (UTC if it has no zone), or a day. Raise Invalid with a reason for anything else."""
    try:
        if len(text) == 10:
            day = date.fromisoformat(text)
            return to_micros(datetime(day.year, day.month, day.day, tzinfo=UTC))
        return to_micros(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise Invalid(f"'{text}' is not a date: use ISO 8601, such as 2026-11-15 or 2026-11-15T04:05:48Z") from error
