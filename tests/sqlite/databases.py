"""Both databases built on this package, with one way to open them and to run a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from hermes.db import engine as store
from hermes.memory_server.db import database as server
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.sqlite.database import SqliteDatabase

Tx: TypeAlias = sqlite3.Connection | server.Tx
Database: TypeAlias = SqliteDatabase[Any]

OPEN: dict[str, Callable[[Path, float], Database]] = {
    "store": lambda path, lock_timeout: store.StoreDatabase(path, lock_timeout=lock_timeout),
    "server": lambda path, lock_timeout: SqliteFile(path, lock_timeout=lock_timeout),
}


def run(tx: Tx, statement: str, *given: object) -> list[Any]:
    """Run a statement as the database's functions do; return its rows, if any."""
    done: Any = tx.execute(statement, given) if isinstance(tx, sqlite3.Connection) else _run(tx, statement, given)
    return [] if done is None else list(done)


def _run(tx: server.Tx, statement: str, given: tuple[Any, ...]) -> Any:
    result = tx.exec_driver_sql(statement, given)
    return result if result.returns_rows else None
