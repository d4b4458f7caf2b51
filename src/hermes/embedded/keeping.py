"""A program that stays, such as a gateway, keeps the memory server while it runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.embedded.asking import show_key
from hermes.embedded.connect import find_running
from hermes.embedded.place import Place
from hermes.errors import MemoryServerError

log = logging.getLogger(__name__)
KEEP_EVERY = 20.0
"""Seconds between two uses."""


@contextmanager
def keeping(place: Place) -> Iterator[None]:
    """While the block lasts, a server that runs is used now and then, so that it does not end. None is started."""
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
        except MemoryServerError as error:
            if told != error.line():
                told = error.line()
                log.warning("%s", told)
