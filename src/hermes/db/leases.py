"""Leases with fencing epochs: who may act on a name, until when, and proof that it is still so.

An epoch only grows, also when a lease is released or taken over, so that a result under an old epoch can be refused.
An owner whose process has certainly ended holds nothing. All functions run inside the caller's transaction; `now` is
passed in.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hermes.db.engine import Tx
from hermes.db.owners import is_gone
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
    """Held by `owner` until `expires_at`; `epoch` tells it from every earlier holding of the same name."""

    name: str
    owner: str
    epoch: int
    expires_at: float


def acquire(tx: Tx, name: str, owner: str, *, ttl: float, now: float) -> Lease | None:
    """The lease, or None while someone else holds it. A name one holds already is not given a second time."""
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
    """Who holds `name` now, or None."""
    lease = _granted(tx, name, now)
    return None if lease is None or is_gone(lease.owner) else lease


def free_from_gone(tx: Tx, name: str, *, now: float) -> bool:
    """End the lease of an owner that is gone before it expires; False when there was none."""
    lease = _granted(tx, name, now)
    if lease is None or not is_gone(lease.owner):
        return False
    revoke(tx, name)
    return True


def revoke(tx: Tx, name: str) -> None:
    """End the lease on `name`, whoever holds it: what they do under it from now on is refused."""
    tx.execute("UPDATE hermes_leases SET owner = NULL, expires_at = 0 WHERE name = ?", (name,))


def _granted(tx: Tx, name: str, now: float) -> Lease | None:
    row = tx.execute(
        "SELECT * FROM hermes_leases WHERE name = ? AND owner IS NOT NULL AND expires_at > ?", (name, now)
    ).fetchone()
    return None if row is None else Lease(row["name"], row["owner"], row["epoch"], row["expires_at"])


def check(tx: Tx, lease: Lease) -> None:
    """Raise StaleError unless `lease` is still the newest holding of its name.

    A lease past its expiry that nobody took over still passes: the epoch, not the clock, decides.
    """
    row = tx.execute("SELECT owner, epoch FROM hermes_leases WHERE name = ?", (lease.name,)).fetchone()
    if row is None or row["owner"] != lease.owner or row["epoch"] != lease.epoch:
        raise StaleError(f"the lease on {lease.name} was lost to another owner")


def renew(tx: Tx, lease: Lease, *, ttl: float, now: float) -> Lease:
    """Hold on for another `ttl`. Raises StaleError when the lease was lost."""
    check(tx, lease)
    tx.execute("UPDATE hermes_leases SET expires_at = ? WHERE name = ?", (now + ttl, lease.name))
    return replace(lease, expires_at=now + ttl)


def release(tx: Tx, lease: Lease) -> None:
    """Let go. Raises StaleError when the lease was lost before."""
    check(tx, lease)
    tx.execute("UPDATE hermes_leases SET owner = NULL, expires_at = 0 WHERE name = ?", (lease.name,))
