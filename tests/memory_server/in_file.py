"""What a folder's file holds, looked at from outside."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from hermes.memory_server.db.schema import FILE


def rows(folder: Path) -> dict[str, int]:
    """How many rows each table has, and what does not fit is an error."""
    connection = sqlite3.connect(folder / FILE)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    mine = [name for name in tables if not name.startswith(("sqlite_", "message_index", "alembic"))]
    counts = {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in mine}
    connection.execute("INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return {name: count for name, count in counts.items() if count}


def wait_for_work(folder: Path) -> None:
    """Wait until every job is done, also those that no status speaks of."""
    deadline = time.monotonic() + 100
    with closing(sqlite3.connect(folder / FILE)) as file:
        while file.execute("SELECT 1 FROM jobs WHERE state IN ('pending', 'running')").fetchone():
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the server has no way to be waited for
