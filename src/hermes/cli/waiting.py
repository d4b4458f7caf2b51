"""What a person is told while a command waits for something that may take long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.cli.output import note

QUIET, AGAIN = 0.5, 10.0
"""Seconds before anything is said, and between one line and the next."""


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Say on standard error what is being done, once that takes longer than a moment, and now and then for how long."""
    begun, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        if is_over.wait(QUIET):
            return
        note(f"{what} …")
        while not is_over.wait(AGAIN):
            note(f"{what} … ({time.monotonic() - begun:.0f} s)")

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        is_over.set()
        telling.join()
