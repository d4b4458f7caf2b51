"""Our own tables, made and changed in numbered steps. Tables that are not ours are never touched here."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.errors import StoreNewerError


class Migration(Struct, frozen=True):
    """One step. Its statements run once, in order, in one transaction."""

    version: int
    statements: tuple[str, ...]


def current_version(tx: Tx) -> int:
    """The last step that was applied to this file; 0 for a file that has none of our tables."""
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
    """Apply what is missing. A file from a newer version is refused untouched."""
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
