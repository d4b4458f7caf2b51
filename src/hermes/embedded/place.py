"""Where the one memory server of a folder is found, and where it writes. Who holds the lock is the server, and the lock
ends with the process."""

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
        """Says how the server is reached; its lock is held by who is starting one."""
        return self.folder / "server.json"

    @property
    def seat(self) -> Path:
        """What the server holds the lock of, for life."""
        return self.folder / "server"

    @property
    def log(self) -> Path:
        return self.home / "logs" / "memory.log"

    @property
    def start_log(self) -> Path:
        """What a server says before it can log, made anew at every start."""
        return self.home / "logs" / "memory-start.log"

    @property
    def access_log(self) -> Path:
        return self.home / "logs" / "memory-access.log"


def find_place(home: Home, env: Mapping[str, str], data: Path | None = None) -> Place:
    """The folder that was given, else HERMES_MEMORY_DATA, else `memory/` of the default home: all profiles share it."""
    if data is None and (given := env.get("HERMES_MEMORY_DATA")):
        data = Path(given)
    return Place(home.memory if data is None else data.expanduser().absolute(), home.shared)


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
