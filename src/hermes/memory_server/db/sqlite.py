"""A database in one SQLite file: SQLAlchemy's connection is the transaction."""

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
"""Nearly every read takes a few milliseconds, and one thread does them all: several would compete for Python's global
lock, and together do a third less than one alone."""
LOG_BYTES = 4 * 1024 * 1024
"""A burst of writes lets the write-ahead log grow; this much of it is kept."""


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
        """Open a file or make it; `prepare` is the first write. A read takes at most `read_seconds`."""
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
        """Do nothing: a file tells nobody. Workers look for work by themselves."""

    async def index_vectors(self, scope: VectorScope | None) -> None:
        """Do nothing: in a file every vector is compared."""


def driver(tx: Tx) -> sqlite3.Connection:
    """The driver's connection below a transaction."""
    raw: Any = tx.connection.dbapi_connection
    return cast("sqlite3.Connection", raw)


def create_file_engine(path: Path) -> Engine:
    """Return what opens connections to a file, whose errors are ours."""
    engine = create_engine(
        "sqlite://", creator=lambda: _connection(path), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )

    def translated(context: ExceptionContext) -> StoreError | None:
        """What SQLite refuses inside SQLAlchemy, as if the driver had been asked."""
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
