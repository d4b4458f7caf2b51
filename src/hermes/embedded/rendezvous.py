"""The rendezvous file: address and key of a running memory server, readable only by the folder's owner.

Paths of the memory server of a folder. The process that holds its lock is the server; the lock ends with the
process.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from hermes import __version__
from hermes.errors import HomeError, MemoryServerError
from hermes.files import check_file, locked, replace_file
from hermes.home import Home

MAX_FILE_BYTES = 16 * 1024
NO_RENDEZVOUS = "it contains no address of a memory server"
ServerMode = Literal["background", "serve"]
"""Started automatically, or by a person with `hermes memory serve`."""


class Rendezvous(Struct, frozen=True):
    """A running server. `start_id` is never sent; the server uses it to prove that it wrote this file."""

    url: str
    api_key: str
    start_id: str
    pid: int
    version: str
    kind: ServerMode
    started_at: float
    folder: str = ""
    """The folder that it serves, by its name on the server's side; "" in files of earlier versions."""


def new_rendezvous(url: str, api_key: str, start_id: str, kind: ServerMode, folder: Path) -> Rendezvous:
    """Return the rendezvous of the server in this process."""
    return Rendezvous(url, api_key, start_id, os.getpid(), __version__, kind, time.time(), str(folder.resolve()))


def new_secret() -> str:
    """Return an unguessable text."""
    return secrets.token_urlsafe(32)


def read_rendezvous(path: Path) -> Rendezvous | None:
    """Return the content of the file, or None if it does not exist. Raises MemoryServerError for a file that no server
    of ours, run by this user, wrote."""
    try:
        check_file(path)
        _check_owner(path, path.stat().st_uid)
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _foreign(path, error.strerror or str(error)) from error
    return _parse(path, raw)


def publish(path: Path, rendezvous: Rendezvous) -> None:
    """Write the file atomically, readable only by its owner. An existing file is replaced only if it was a server's."""
    read_rendezvous(path)
    replace_file(path, msgspec.json.format(msgspec.json.encode(rendezvous), indent=1).decode())


def withdraw(path: Path, rendezvous: Rendezvous) -> None:
    """Remove the file if it belongs to this server. One that cannot be removed stays behind as stale."""
    try:
        found = read_rendezvous(path)
        if found is not None and found.start_id == rendezvous.start_id:
            path.unlink(missing_ok=True)
    except (OSError, MemoryServerError):
        return


def _check_owner(path: Path, owner: int) -> None:
    """Check the owner, on systems where files have owners."""
    user = getattr(os, "geteuid", None)
    if user is not None and owner != user():
        raise MemoryServerError(
            f"{path} belongs to another user",
            hint="Its owner could read your memory; set HERMES_MEMORY_DATA to a folder of your own",
        )


def _parse(path: Path, raw: bytes) -> Rendezvous:
    """Decode the file. Unknown fields of later versions are ignored."""
    try:
        found = msgspec.json.decode(raw, type=Rendezvous)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _foreign(path, NO_RENDEZVOUS) from error
    if not found.url.startswith("http://"):
        raise _foreign(path, NO_RENDEZVOUS)
    return found


def _foreign(path: Path, reason: str) -> MemoryServerError:
    return MemoryServerError(f"{path} was not written by a memory server: {reason}", hint="Move it away and try again")


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
