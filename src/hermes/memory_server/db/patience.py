"""Waiting and computing inside a read, beside the database, and who it is done for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.sqlite.reading import check_reading
from hermes.sqlite.scheduling import Asker, Threads, asker

LOCK_POLL_SECONDS = 0.02
"""Seconds between two looks whether a read that waits may go on."""

__all__ = ["Asker", "Threads", "asker", "check_reading", "holding"]


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock for the length of a block. A read that has to stop does not go on waiting for it."""
    while not lock.acquire(timeout=LOCK_POLL_SECONDS):
        check_reading()
    try:
        yield
    finally:
        lock.release()
