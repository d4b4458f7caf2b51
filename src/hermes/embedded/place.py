"""Paths of the memory server of a folder. The process that holds its lock is the server; the lock ends with the
process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from hermes.errors import HomeError
from hermes.files import locked
from hermes.home import Home


class Place(Struct, frozen=True):
    """A data folder, and the default home, which holds the server's settings and logs."""

    folder: Path
    home: Path

    @property
    def rendezvous(self) -> Path:
        """File with the server's address; its lock is held while a process starts the server."""
        return self.folder / "server.json"

    @property
    def seat(self) -> Path:
        """File whose lock the server holds for life."""
        return self.folder / "server"

    @property
    def log(self) -> Path:
        return self.home / "logs" / "memory.log"

    @property
    def start_log(self) -> Path:
        """Output of a server before it can log, recreated at every start."""
        return self.home / "logs" / "memory-start.log"

    @property
    def access_log(self) -> Path:
        return self.home / "logs" / "memory-access.log"


def find_place(home: Home, env: Mapping[str, str], data: Path | None = None) -> Place:
    """Return `data`, else HERMES_MEMORY_DATA, else `memory/` of the default home, which all profiles share."""
    if data is None and (given := env.get("HERMES_MEMORY_DATA")):
        data = Path(given)
    return Place(home.memory if data is None else data.expanduser().absolute(), home.shared)


@contextmanager
def try_lock(path: Path, timeout: float = 0.0) -> Iterator[bool]:
    """Hold the lock beside `path` for the length of a block. Yields False if another process held it throughout."""
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
            lock.__exit__(None, None, None)  # without the block's exception, which is not the lock's


def is_taken(place: Place) -> bool:
    """Return True if a server holds the folder, even one that is starting or ending."""
    with try_lock(place.seat) as free:
        return not free
