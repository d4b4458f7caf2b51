"""Lock waits that a stopped read abandons, and the scheduling of threads by client (re-exported from
`hermes.sqlite`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.sqlite.reading import check_reading
from hermes.sqlite.scheduling import ScheduledClient, Threads, scheduled_client

LOCK_POLL_SECONDS = 0.02
"""Interval at which a read that waits for a lock checks whether it was stopped."""

__all__ = ["ScheduledClient", "Threads", "check_reading", "holding", "scheduled_client"]


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock for a block. A read that is stopped raises instead of waiting on."""
    while not lock.acquire(timeout=LOCK_POLL_SECONDS):
        check_reading()
    try:
        yield
    finally:
        lock.release()
