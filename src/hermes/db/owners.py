"""Who we are to other processes: a name for leases that tells whether its process is still there."""

from __future__ import annotations

import os
import secrets
import socket


def new_owner() -> str:
    """A name for this process, different at every start."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def is_gone(owner: str) -> bool:
    """Whether the process behind `owner` has certainly ended: only then may its lease be taken before it expires."""
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if os.name == "nt" or host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
