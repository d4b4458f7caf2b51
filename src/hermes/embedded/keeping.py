"""A program that stays, such as a gateway, keeps the memory server while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.embedded.asking import show_key
from hermes.embedded.connect import find_running
from hermes.embedded.place import Place
from hermes.errors import HermesError

log = logging.getLogger(__name__)
KEEP_EVERY = 20.0
"""Seconds between two uses."""


@contextmanager
def keeping(place: Place) -> Iterator[None]:
    """Show a running server now and then, for the length of the block, that it is still needed. None is started."""
    over = threading.Event()
    threading.Thread(target=_keep, args=(place, over), daemon=True, name="memory-server-kept").start()
    try:
        yield
    finally:
        over.set()


def _keep(place: Place, over: threading.Event) -> None:
    told = ""
    while not over.wait(KEEP_EVERY):
        try:
            if (found := find_running(place)) is not None:
                show_key(found)
            told = ""
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whatever is wrong now may be right next time
            line = error.line() if isinstance(error, HermesError) else f"{type(error).__name__}: {error}"
            if told != line:
                told = line
                log.warning("could not tell the memory server that it is still needed: %s", line)
