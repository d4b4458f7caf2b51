"""The store's file. A transaction is the driver's own connection, with rows by column name. Our tables are created and
changed in numbered migrations; tables of other programs are never changed here."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from hermes.errors import StoreNewerError
from hermes.sqlite.connection import connect_plainly
from hermes.sqlite.database import SqliteDatabase, accept
from hermes.sqlite.reading import ReadLane

Tx: TypeAlias = sqlite3.Connection
"""An open transaction. Functions that take one must have no effect outside it."""

READ_LANES = (ReadLane(threads=4),)


class StoreDatabase(SqliteDatabase[Tx]):
    """An open file. When `write` returns, its changes are on disk."""

    def __init__(self, path: Path, *, lock_timeout: float, inspect: Callable[[Tx], None] = accept) -> None:
        """Open a file or create it. `inspect` sees it before any change, and raises an error to refuse it."""
        super().__init__(
            path,
            partial(connect_plainly, path),
            lock_timeout=lock_timeout,
            lanes=READ_LANES,
            pragmas=("temp_store = MEMORY",),
            inspect=inspect,
        )


class Migration(Struct, frozen=True):
    """One migration. Its statements run once, in order, in one transaction."""

    version: int
    statements: tuple[str, ...]


def current_version(tx: Tx) -> int:
    """Return the newest migration applied to this file; 0 if it has none of our tables."""
    known = tx.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'hermes_migrations'").fetchone()
    if known is None:
        return 0
    row = tx.execute("SELECT max(version) FROM hermes_migrations").fetchone()
    return int(row[0] or 0)


def refuse_newer(tx: Tx, migrations: Sequence[Migration]) -> None:
    """Raise StoreNewerError for a file that a newer version has changed."""
    have, want = current_version(tx), migrations[-1].version
    if have > want:
        raise StoreNewerError(f"the store is of version {have}, but this hermes knows {want}")


def migrate(tx: Tx, migrations: Sequence[Migration], now: float) -> None:
    """Apply the missing migrations. Raises StoreNewerError, and changes nothing, for a file of a newer version."""
    refuse_newer(tx, migrations)
    have = current_version(tx)
    if have == 0:
        tx.execute(
            "CREATE TABLE IF NOT EXISTS hermes_migrations (version INTEGER PRIMARY KEY, applied_at REAL NOT NULL)"
        )
    for migration in migrations:
        if migration.version > have:
            for statement in migration.statements:
                tx.execute(statement)
            tx.execute("INSERT INTO hermes_migrations VALUES (?, ?)", (migration.version, now))
