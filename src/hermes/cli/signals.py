"""Signals that ask a process to end, or to stop what it does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress


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


@contextmanager
def on_signals(names: Iterable[str], act: Callable[[int], object]) -> Iterator[Callable[[], None]]:
    """Within the block these signals call `act` on the loop, with their number; what is given ends that before.

    Windows has no such handlers: there Ctrl-C ends the program.
    """
    loop = asyncio.get_running_loop()
    watched: list[int] = []

    def let_go() -> None:
        while watched:
            loop.remove_signal_handler(watched.pop())

    for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, act, number)
            watched.append(number)
    try:
        yield let_go
    finally:
        let_go()
