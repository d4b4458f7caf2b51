"""One server per folder: who holds the lock is the server, and the lock ends with the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.embedded.place import Place
from hermes.errors import HomeError
from hermes.files import locked


@contextmanager
def try_lock(path: Path, timeout: float = 0.0) -> Iterator[bool]:
    """The lock beside `path` for the length of a block; False when another process held it all the while."""
    lock, ours = locked(path, timeout=timeout), True
    try:
        lock.__enter__()
    except HomeError as error:
        if not isinstance(error.__cause__, TimeoutError):
            raise
        ours = False
    try:
        yield ours
    finally:
        if ours:
            lock.__exit__(None, None, None)  # what goes wrong in the block is no fault of the lock


def is_taken(place: Place) -> bool:
    """Whether a server holds the folder now, also one that is starting or ending."""
    with try_lock(place.seat) as free:
        return not free
