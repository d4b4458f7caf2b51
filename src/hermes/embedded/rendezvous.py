"""The rendezvous file: address and key of a running memory server, for the owner of the folder alone."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from hermes import __version__
from hermes.errors import MemoryServerError
from hermes.files import check_file, replace_file

LARGEST = 16 * 1024
NO_RENDEZVOUS = "it does not say where a memory server is"
ServerMode = Literal["background", "serve"]
"""Started by itself, or by a person with `hermes memory serve`."""


class Rendezvous(Struct, frozen=True):
    """A server that answers. `start_id` is never sent: a server proves with it that it is the one that wrote this."""

    url: str
    api_key: str
    start_id: str
    pid: int
    version: str
    kind: ServerMode
    started_at: float
    folder: str = ""
    """The folder that it serves, by the name that it has for the server; "" where an earlier version did not say."""


def new_rendezvous(url: str, api_key: str, start_id: str, kind: ServerMode, folder: Path) -> Rendezvous:
    """That of the server in this process."""
    return Rendezvous(url, api_key, start_id, os.getpid(), __version__, kind, time.time(), str(folder.resolve()))


def new_secret() -> str:
    """A text that nobody guesses."""
    return secrets.token_urlsafe(32)


def read_rendezvous(path: Path) -> Rendezvous | None:
    """What the file says; None when there is none. Raises MemoryServerError for anything that a server of ours, run by
    this user, did not write."""
    try:
        check_file(path)
        _check_owner(path, path.stat().st_uid)
        with path.open("rb") as file:
            raw = file.read(LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _foreign(path, error.strerror or str(error)) from error
    return _parse(path, raw)


def publish(path: Path, rendezvous: Rendezvous) -> None:
    """Write the file, in one step, readable by its owner alone. What stands there is replaced if it was a server's."""
    read_rendezvous(path)
    replace_file(path, msgspec.json.format(msgspec.json.encode(rendezvous), indent=1).decode())


def withdraw(path: Path, rendezvous: Rendezvous) -> None:
    """Remove the file while it is this server's. One that cannot be removed is stale, and is taken for that."""
    try:
        found = read_rendezvous(path)
        if found is not None and found.start_id == rendezvous.start_id:
            path.unlink(missing_ok=True)
    except (OSError, MemoryServerError):
        return


def _check_owner(path: Path, owner: int) -> None:
    """On systems where files have owners."""
    user = getattr(os, "geteuid", None)
    if user is not None and owner != user():
        raise MemoryServerError(
            f"{path} belongs to another user",
            hint="Whoever may write there could read along; set HERMES_MEMORY_DATA to a folder of your own",
        )


def _parse(path: Path, raw: bytes) -> Rendezvous:
    """What else the file holds is a later version's."""
    try:
        found = msgspec.json.decode(raw, type=Rendezvous)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _foreign(path, NO_RENDEZVOUS) from error
    if not found.url.startswith("http://"):
        raise _foreign(path, NO_RENDEZVOUS)
    return found


def _foreign(path: Path, reason: str) -> MemoryServerError:
    return MemoryServerError(f"{path} was not written by a memory server: {reason}", hint="Move it away and try again")
