"""Signals that ask a process to end, or to stop what it does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

TO_END = ("SIGINT", "SIGTERM")
"""Signals that end a server cleanly."""


@contextmanager
def on_signals(names: Iterable[str], act: Callable[[int], object]) -> Iterator[Callable[[], None]]:
    """Call `act` on the event loop, with the signal's number, for each of these signals while the block runs. Yields a
    function that ends that early."""
    loop = asyncio.get_running_loop()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            try:
                loop.remove_signal_handler(number)  # from then on Ctrl-C ends the program
            except NotImplementedError:
                signal.signal(number, handler)

    for number in numbers:
        try:
            loop.add_signal_handler(number, act, number)  # also wakes an idle loop
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(act, number))
    try:
        yield restore
    finally:
        restore()
