"""Signals that ask a process that serves to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ending_on_signals(end: Callable[[], object]) -> Iterator[None]:
    """Within the block SIGINT and SIGTERM call `end` on the loop, so that the process ends in good order."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(end)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
