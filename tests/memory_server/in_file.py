"""Helpers that inspect the database of a folder from outside the server."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from hermes.memory_server.db.schema import FILE
from tests.memory_server.serving import DATABASE_URL


def rows(folder: Path) -> dict[str, int]:
    """Return the number of rows of each table, and fail if the database is inconsistent."""
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
    """Wait until every job is done, including jobs that the queue status does not list."""
    deadline = time.monotonic() + 100
    query = "SELECT 1 FROM jobs WHERE state IN ('pending', 'running')"
    with closing(_connect(folder)) as memory:
        while memory.execute(query).fetchone():
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the server has no way to be waited for


def _connect(folder: Path) -> Any:
    """Open the database of a folder's server, a file or PostgreSQL."""
    if (folder / DATABASE_URL).exists():
        url, path = (folder / DATABASE_URL).read_text(), "-csearch_path=hermes_memory"
        return psycopg.connect(url, options=path, autocommit=True)
    return sqlite3.connect(folder / FILE)
