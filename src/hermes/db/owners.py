"""Who we are to other processes: a name for leases that tells whether its process is still there."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

_OURS: set[str] = set()
"""The names that this process has given itself."""


def new_owner() -> str:
    """A name for this process, different at every start."""
    owner = f"{_place()}:{os.getpid()}:{secrets.token_hex(4)}"
    _OURS.add(owner)
    return owner


def is_gone(owner: str) -> bool:
    """Whether the process behind `owner` has certainly ended: only then may its lease be taken before it expires."""
    place, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if os.name == "nt" or place != _place() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():  # in a container each start may get the same id: an owner we never were is gone
        return owner not in _OURS
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent to notice; False where the system does not tell."""
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # "17 (name) Z …": a name may hold brackets and blanks itself.
    return told.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _place() -> str:
    """Where our process ids mean something: this machine and, on Linux, this container."""
    try:
        container = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{container}"
