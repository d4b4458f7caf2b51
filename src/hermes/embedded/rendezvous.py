"""The rendezvous file: address and key of a running memory server, for the owner of the folder alone."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hermes import __version__
from hermes.errors import MemoryServerError
from hermes.files import check_file, replace_file

LARGEST = 16 * 1024
Kind = Literal["background", "serve"]
"""Started by itself, or by a person with `hermes memory serve`."""
TYPES: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("url", "api_key", "start_id", "version", "kind"), str),
    "pid": int,
    "started_at": (int, float),
}
"""What a file must hold to be one of these; what else it holds is a later version's."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A server that answers. `start_id` is never sent: a server proves with it that it is the one that wrote this."""

    url: str
    api_key: str
    start_id: str
    pid: int
    version: str
    kind: Kind
    started_at: float


def new_rendezvous(url: str, api_key: str, start_id: str, kind: Kind) -> Rendezvous:
    """That of the server in this process."""
    return Rendezvous(url, api_key, start_id, os.getpid(), __version__, kind, time.time())


def new_secret() -> str:
    """A text that nobody guesses."""
    return secrets.token_urlsafe(32)


def read_rendezvous(path: Path) -> Rendezvous | None:
    """What the file says; None when there is none. Raises MemoryServerError for anything that a server of ours, run by
    this user, did not write."""
    try:
        check_file(path)
        with path.open("rb") as file:
            _check_owner(path, os.fstat(file.fileno()).st_uid)
            raw = file.read(LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _foreign(path, error.strerror or str(error)) from error
    return _parse(path, raw)


def publish(path: Path, rendezvous: Rendezvous) -> None:
    """Write the file, in one step, readable by its owner alone. What stands there is replaced if it was a server's."""
    read_rendezvous(path)
    replace_file(path, json.dumps(asdict(rendezvous), indent=1))


def withdraw(path: Path, rendezvous: Rendezvous) -> None:
    """Remove the file while it is this server's. One that cannot be removed is stale, and is taken for that."""
    try:
        if read_rendezvous(path) == rendezvous:
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
    try:
        said = json.loads(raw)
        if all(isinstance(said[name], kinds) for name, kinds in TYPES.items()) and said["url"].startswith("http://"):
            return Rendezvous(**{name: said[name] for name in TYPES})
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # told below
    raise _foreign(path, "it does not say where a memory server is")


def _foreign(path: Path, reason: str) -> MemoryServerError:
    return MemoryServerError(f"{path} was not written by a memory server: {reason}", hint="Move it away and try again")
