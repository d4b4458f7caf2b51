"""Signals that ask a process to end, or to stop what it does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

TO_END = ("SIGINT", "SIGTERM")
"""What ends a server in good order."""


@contextmanager
def on_signals(names: Iterable[str], act: Callable[[int], object]) -> Iterator[Callable[[], None]]:
    """Within the block these signals, where the system has them, call `act` on the loop, with their number; what is
    given ends that before."""
    loop = asyncio.get_running_loop()

    def hear(number: int, _: object) -> None:
        loop.call_soon_threadsafe(act, number)

    def let_go() -> None:
        while before:
            signal.signal(*before.popitem())

    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, hear) for number in numbers}

    try:
        yield let_go
    finally:
        let_go()
