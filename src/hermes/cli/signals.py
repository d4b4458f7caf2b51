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
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}

    def let_go() -> None:
        while before:
            number, handler = before.popitem()
            try:
                loop.remove_signal_handler(number)  # from then on Ctrl-C ends the program
            except NotImplementedError:
                signal.signal(number, handler)

    for number in numbers:
        try:
            loop.add_signal_handler(number, act, number)  # a loop that waits for nothing else is woken by this alone
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(act, number))
    try:
        yield let_go
    finally:
        let_go()
