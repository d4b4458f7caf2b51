"""Where the one memory server of a folder is found, and where it writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

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
