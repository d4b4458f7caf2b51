"""A database in one SQLite file. A transaction is a connection of SQLAlchemy."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Engine, ExceptionContext, create_engine, event
from sqlalchemy.pool import NullPool

from hermes.errors import StoreError
from hermes.memory_server.db.database import DatabaseLoad, Tx
from hermes.memory_server.db.functions import register_functions
from hermes.memory_server.db.neighbours import VectorScope
from hermes.sqlite.connection import Opened, connect
from hermes.sqlite.database import SqliteDatabase, Synchronous, accept
from hermes.sqlite.faults import translate
from hermes.sqlite.reading import ReadLane

LANES = (
    ReadLane(threads=1, seconds=0.01, together=0.002),
    ReadLane(threads=1, seconds=0.1),
    ReadLane(threads=1, seconds=0.5),
    ReadLane(threads=1),
)
"""Most reads take a few milliseconds, and one thread runs them all: several threads compete for the interpreter lock,
and together are a third slower than one."""
LOG_BYTES = 4 * 1024 * 1024
"""Size to which the write-ahead log is truncated after a burst of writes."""


class SqliteFile(SqliteDatabase[Tx]):
    """An open file, shared with other processes."""

    def __init__(
        self,
        path: Path,
        *,
        lock_timeout: float = 30.0,
        synchronous: Synchronous = "FULL",
        read_seconds: float | None = None,
        prepare: Callable[[Tx], None] = accept,
    ) -> None:
        """Open or create a file; `prepare` is the first write. A read takes at most `read_seconds`."""
        engine = create_file_engine(path)
        super().__init__(
            path,
            lambda: _connect(engine),
            lock_timeout=lock_timeout,
            lanes=LANES,
            read_seconds=read_seconds,
            synchronous=synchronous,
            pragmas=(f"journal_size_limit = {LOG_BYTES}",),
            prepare=prepare,
        )

    @property
    def folder(self) -> Path | None:
        return self.path.parent

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path.parent).free

    def measure(self) -> DatabaseLoad | None:
        return None

    def watch_jobs(self, wake: Callable[[], object]) -> None:
        """Do nothing: a file cannot notify. Workers poll for work."""

    async def index_vectors(self, scope: VectorScope | None) -> None:
        """Do nothing: every vector in a file is compared."""


def driver(tx: Tx) -> sqlite3.Connection:
    """Return the driver's connection of a transaction."""
    raw: Any = tx.connection.dbapi_connection
    return cast("sqlite3.Connection", raw)


def create_file_engine(path: Path) -> Engine:
    """Return an engine that connects to a file and raises our errors."""
    engine = create_engine(
        "sqlite://", creator=lambda: _connection(path), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )

    def translated(context: ExceptionContext) -> StoreError | None:
        """Convert an error of SQLite inside SQLAlchemy, as for a direct call of the driver."""
        cause = context.original_exception
        return translate(cause, path) if isinstance(cause, sqlite3.Error) else None

    event.listen(engine, "handle_error", translated, retval=True)
    return engine


def _connection(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    register_functions(connection)
    return connection


def _connect(engine: Engine) -> Opened[Tx]:
    tx = engine.connect()
    return Opened(driver(tx), tx)
