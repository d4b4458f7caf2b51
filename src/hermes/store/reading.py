"""Reading a store file of any version without changing it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hermes.db.engine import Tx
from hermes.sqlite.connection import read_text
from hermes.sqlite.faults import translate
from hermes.store.schema import MIGRATIONS

OUR_TABLE = re.compile(r"\A\s*(?:CREATE|ALTER) TABLE (hermes_\w+)")


@contextmanager
def open_unchanged(path: Path, *, lock_timeout: float) -> Iterator[Tx]:
    """Yield one consistent snapshot of an existing file. Raises StoreError for every SQLite error."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={_mode(path)}", uri=True)) as tx:
            tx.row_factory = sqlite3.Row
            tx.text_factory = read_text
            tx.isolation_level = None
            tx.execute(f"PRAGMA busy_timeout = {int(lock_timeout * 1000)}")
            tx.execute("PRAGMA temp_store = MEMORY")
            tx.execute("BEGIN")
            yield tx
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, path) from error


def lend_tables(tx: Tx) -> None:
    """Create those of our tables that the file lacks as empty temporary tables of this connection. The file does not
    change."""
    there = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master")}
    for statement in (statement for migration in MIGRATIONS for statement in migration.statements):
        found = OUR_TABLE.match(statement)
        if found and found[1] not in there:
            tx.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))


def _mode(path: Path) -> str:
    """Return "ro" or "rw". A read-only connection leaves an empty log beside a file that had none; a writable one
    removes it.

    But a writable one would also apply the log of a killed process, which we must not.
    """
    left = any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal"))
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return "ro" if left or not writable else "rw"
