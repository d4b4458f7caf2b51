"""A SQLite file with the tables of leases and queue, and transactions on it without threads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.db import leases, queue
from hermes.db.engine import Tx


def make_file(path: Path) -> sqlite3.Connection:
    """Return a new file that does not wait for the disk: these tests are not about durability."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    for statement in (leases.SCHEMA, *queue.SCHEMA, *queue.TRIED_AT, queue.LOST):
        connection.execute(statement)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[Tx]:
    """Run one transaction: committed at the end, rolled back on an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def dump(connection: sqlite3.Connection) -> list[str]:
    """Return the whole content, for comparison."""
    return list(connection.iterdump())
