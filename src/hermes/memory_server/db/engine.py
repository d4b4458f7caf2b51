"""One writer and a few readers for one SQLite file, shared with other processes.

Writes that wait at the same moment share one transaction and so one fsync; each runs in a savepoint of its own, so
that one that is refused takes nothing else with it. A write is acknowledged after its COMMIT and not before.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from hermes.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError
from hermes.memory_server.db.functions import register_functions

T = TypeVar("T")
Tx: TypeAlias = Connection
"""An open transaction. Functions that take one must have no effect outside it."""

Record: TypeAlias = Any
"""A row that was read: its columns are attributes."""
Failure = (DBAPIError, sqlite3.Error)
"""What SQLite refuses reaches us through SQLAlchemy, or straight from the driver where that runs the statement."""

Synchronous = Literal["FULL", "NORMAL"]
"""FULL: a write is on the disk when it is acknowledged. NORMAL: it may be undone, whole, by a power cut."""
READERS = 2
LOG_BYTES = 4 * 1024 * 1024
"""A burst of writes lets the write-ahead log grow; this much of it is kept."""
GROUP_LIMIT = 64
"""How many waiting writes share one commit."""
LOCK_PAUSE = (0.0005, 0.003)
"""Seconds between two tries for the write lock. SQLite's own pauses grow, so that who waits longest gets it last."""
FAULTS = (
    (("SQLITE_BUSY", "SQLITE_LOCKED"), StoreBusyError),
    (("SQLITE_FULL",), StoreFullError),
    (("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"), StoreReadOnlyError),
    (("SQLITE_CORRUPT", "SQLITE_NOTADB"), StoreDamagedError),
)


@dataclass(frozen=True, slots=True)
class _Write(Generic[T]):
    run: Callable[[Tx], T]
    done: Future[T]


class Database:
    """An open file. `write` and `read` run a function in a transaction and return what it returned."""

    def __init__(self, path: Path, *, lock_timeout: float = 30.0, synchronous: Synchronous = "FULL") -> None:
        self.path = path
        self._synchronous = synchronous
        self._lock_timeout = lock_timeout
        self._writes: queue.SimpleQueue[_Write[Any] | None] = queue.SimpleQueue()
        self._engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, isolation_level="AUTOCOMMIT")
        event.listen(self._engine, "connect", _prepare)
        self._connections: list[Connection] = []
        self._guard = threading.Lock()
        self._local = threading.local()
        self._closed = False
        self._writer = self._open_writer()
        self._thread = threading.Thread(target=self._write_loop, name="memory-writer", daemon=True)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="memory-reader")

    def start(self) -> None:
        """Begin to take writes; until then the writer's connection may be used through `migrate`."""
        self._thread.start()

    def migrate(self, run: Callable[[Tx], None]) -> None:
        """Run `run` alone under the write lock, before `start`."""
        try:
            self._wait_for_lock(self._writer, "BEGIN IMMEDIATE")
            run(self._writer)
            self._wait_for_lock(self._writer, "COMMIT")
        except Failure as error:
            raise self._translate(error) from error

    async def write(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in a write transaction. When this returns, what it wrote is on the disk."""
        if self._closed:
            raise StoreError(f"{self.path} is closed")
        done: Future[T] = Future()
        self._writes.put(_Write(run, done))
        return await asyncio.wrap_future(done)

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot. It cannot write."""
        if self._closed:
            raise StoreError(f"{self.path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, run)

    async def close(self) -> None:
        """Finish every accepted write, then close the file. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._writes.put(None)
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._readers.shutdown()
        if self._thread.is_alive():
            self._thread.join()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._engine.dispose()

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        with self._guard:
            self._connections.append(connection)
        return connection

    def _open_writer(self) -> Connection:
        try:
            writer = self._connect()
            self._wait_for_lock(writer, "PRAGMA journal_mode = WAL")
            writer.exec_driver_sql(f"PRAGMA synchronous = {self._synchronous}")
            writer.exec_driver_sql("PRAGMA secure_delete = ON")
            writer.exec_driver_sql(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        except Failure as error:
            raise self._translate(error) from error
        return writer

    def _wait_for_lock(self, connection: Connection, statement: str) -> None:
        """Run a statement that needs a lock, trying again for as long as we may wait."""
        deadline = time.monotonic() + self._lock_timeout
        while True:
            try:
                driver(connection).execute(statement)
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(random.uniform(*LOCK_PAUSE))

    def _translate(self, error: DBAPIError | sqlite3.Error) -> StoreError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        name = getattr(cause, "sqlite_errorname", "")
        for names, kind in FAULTS:
            if name.startswith(names):
                return kind(f"{self.path}: {cause}")
        return StoreError(f"{self.path}: {cause}")

    def _read(self, run: Callable[[Tx], T]) -> T:
        connection: Connection | None = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._connect()
                connection.exec_driver_sql("PRAGMA query_only = ON")
                self._local.connection = connection
            driver(connection).execute("BEGIN")
            try:
                return run(connection)
            finally:
                driver(connection).execute("ROLLBACK")
        except Failure as error:
            raise self._translate(error) from error

    def _write_loop(self) -> None:
        """Must not raise: whatever goes wrong belongs to the writes that were under way."""
        while (first := self._writes.get()) is not None:
            batch = [first]
            last = False
            while len(batch) < GROUP_LIMIT and not self._writes.empty():
                following = self._writes.get()
                if following is None:
                    last = True
                    break
                batch.append(following)
            if wanted := [write for write in batch if write.done.set_running_or_notify_cancel()]:
                self._commit(wanted)
            if last:
                break

    def _commit(self, batch: list[_Write[Any]]) -> None:
        results: list[tuple[_Write[Any], Any]] = []
        try:
            self._wait_for_lock(self._writer, "BEGIN IMMEDIATE")
            for write in batch:
                self._run_in_savepoint(write, results)
            self._wait_for_lock(self._writer, "COMMIT")
        except BaseException as error:  # noqa: BLE001 - handed to every caller whose write did not reach the disk
            with suppress(*Failure):  # a rollback that fails shows at the next BEGIN
                driver(self._writer).execute("ROLLBACK")
            shown = self._translate(error) if isinstance(error, Failure) else error
            for write in batch:
                if not write.done.done():
                    write.done.set_exception(shown)
            return
        for write, result in results:
            write.done.set_result(result)

    def _run_in_savepoint(self, write: _Write[Any], results: list[tuple[_Write[Any], Any]]) -> None:
        raw = driver(self._writer)
        raw.execute("SAVEPOINT one")
        try:
            result = write.run(self._writer)
        except BaseException as error:
            if not raw.in_transaction:  # SQLite gave up the whole transaction (disk full, I/O error)
                raise
            raw.execute("ROLLBACK TO one")
            raw.execute("RELEASE one")
            write.done.set_exception(self._translate(error) if isinstance(error, Failure) else error)
            return
        raw.execute("RELEASE one")
        results.append((write, result))


def driver(tx: Tx) -> sqlite3.Connection:
    """The driver's connection below a transaction."""
    raw: Any = tx.connection.dbapi_connection
    return cast("sqlite3.Connection", raw)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA foreign_keys = OFF")
    register_functions(connection)
