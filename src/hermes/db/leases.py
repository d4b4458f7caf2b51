"""Leases with fencing epochs: who may act on a name, until when, and a check that this still holds.

An epoch only grows, even when a lease is released or taken over, so that a result under an old epoch can be refused.
An owner is a process; its name shows whether the process still runs, and one that has certainly ended holds nothing.
Functions with a `tx` run inside the caller's transaction; `now` is passed in.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.errors import StaleError

SCHEMA = """
CREATE TABLE hermes_leases (
    name TEXT PRIMARY KEY,
    owner TEXT,
    epoch INTEGER NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID
"""


class Lease(Struct, frozen=True):
    """A lease held by `owner` until `expires_at`. `epoch` distinguishes it from every earlier lease of the same
    name."""

    name: str
    owner: str
    epoch: int
    expires_at: float


def acquire(tx: Tx, name: str, owner: str, *, ttl: float, now: float) -> Lease | None:
    """Return the lease, or None while anybody holds it, including `owner` itself."""
    free_from_gone(tx, name, now=now)
    row = tx.execute(
        """
        INSERT INTO hermes_leases (name, owner, epoch, expires_at) VALUES (?, ?, 1, ?)
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = epoch + 1, expires_at = excluded.expires_at
        WHERE owner IS NULL OR expires_at <= ?
        RETURNING epoch
        """,
        (name, owner, now + ttl, now),
    ).fetchone()
    return None if row is None else Lease(name, owner, row["epoch"], now + ttl)


def holder(tx: Tx, name: str, *, now: float) -> Lease | None:
    """Return the current lease on `name`, or None."""
    lease = _granted(tx, name, now)
    return None if lease is None or is_gone(lease.owner) else lease


def free_from_gone(tx: Tx, name: str, *, now: float) -> bool:
    """End the lease of an owner whose process has ended; return False without such a lease."""
    lease = _granted(tx, name, now)
    if lease is None or not is_gone(lease.owner):
        return False
    revoke(tx, name)
    return True


def revoke(tx: Tx, name: str) -> None:
    """End the lease on `name`. Later writes of its holder are refused."""
    tx.execute("UPDATE hermes_leases SET owner = NULL, expires_at = 0 WHERE name = ?", (name,))


def _granted(tx: Tx, name: str, now: float) -> Lease | None:
    row = tx.execute(
        "SELECT * FROM hermes_leases WHERE name = ? AND owner IS NOT NULL AND expires_at > ?", (name, now)
    ).fetchone()
    return None if row is None else Lease(row["name"], row["owner"], row["epoch"], row["expires_at"])


def check(tx: Tx, lease: Lease) -> None:
    """Raise StaleError unless `lease` is still the newest lease of its name.

    An expired lease that nobody took over still passes: the epoch, not the clock, decides.
    """
    row = tx.execute("SELECT owner, epoch FROM hermes_leases WHERE name = ?", (lease.name,)).fetchone()
    if row is None or row["owner"] != lease.owner or row["epoch"] != lease.epoch:
        raise StaleError(f"the lease on {lease.name} was lost to another owner")


def renew(tx: Tx, lease: Lease, *, ttl: float, now: float) -> Lease:
    """Extend a lease by `ttl` from now. Raises StaleError if it was lost."""
    check(tx, lease)
    tx.execute("UPDATE hermes_leases SET expires_at = ? WHERE name = ?", (now + ttl, lease.name))
    return replace(lease, expires_at=now + ttl)


def release(tx: Tx, lease: Lease) -> None:
    """Release a lease. Raises StaleError if it was lost."""
    check(tx, lease)
    revoke(tx, lease.name)


_OWN_NAMES: set[str] = set()
"""Owner names that this process has created."""


def new_owner() -> str:
    """Return an owner name for this process, different at every start."""
    owner = f"{_place()}:{os.getpid()}:{secrets.token_hex(4)}"
    _OWN_NAMES.add(owner)
    return owner


def describe_owner(owner: str) -> str:
    """Describe the process of `owner` for people, with its machine if that is not this one."""
    place, _, rest = owner.partition(":")
    where = "" if place == _place() else f" on {place.partition('/')[0]}"
    return f"process {rest.partition(':')[0]}{where}"


def is_gone(owner: str) -> bool:
    """Return True if the process of `owner` has certainly ended: only then may its lease be taken before it expires."""
    place, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if os.name == "nt" or place != _place() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():  # in a container each start may get the same id: an owner we never were is gone
        return owner not in _OWN_NAMES
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """Return True if a process has ended and waits for its parent to collect it; False if the system does not show
    that."""
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # "17 (name) Z …": a name may hold brackets and blanks itself.
    return told.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _place() -> str:
    """Return the scope of our process ids: this machine and, on Linux, this container."""
    try:
        container = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{container}"
