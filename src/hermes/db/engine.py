"""One writer and a few readers for one SQLite file.

Writes that wait at the same moment share one transaction and so one fsync; each runs in a savepoint of its own, so
that one that fails takes nothing else with it. A write is acknowledged after its COMMIT and not before.

Whoever must know what others did since is let look through the writer's own connection: only there can SQLite tell
what it changed from what others changed.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from hermes.db.faults import is_busy, read_text, translate

T = TypeVar("T")
Tx: TypeAlias = sqlite3.Connection
"""An open transaction. Functions that take one must have no effect outside it."""

READERS = 4
GROUP_LIMIT = 128
"""How many waiting writes share one commit."""
LOCK_PAUSE = (0.001, 0.005)
"""Seconds between two tries for the write lock. SQLite's own pauses grow, so that who waits longest gets it last."""


@dataclass(frozen=True, slots=True)
class _Write(Generic[T]):
    run: Callable[[Tx], T]
    done: Future[T]


@dataclass(frozen=True, slots=True)
class _Look(_Write[T]):
    """Reads, and waits for nobody's commit."""


def accept(tx: Tx) -> None:
    """Refuse no file."""


class Database:
    """An open file. `write` and `read` run a function in a transaction and return what it returned."""

    def __init__(self, path: Path, *, lock_timeout: float, inspect: Callable[[Tx], None] = accept) -> None:
        """Open a file or make it. `inspect` sees it before a byte is changed, and raises to refuse it."""
        self.path = path
        self._lock_timeout = lock_timeout
        self._writes: queue.SimpleQueue[_Write[Any] | None] = queue.SimpleQueue()
        self._connections: list[sqlite3.Connection] = []
        self._connections_guard = threading.Lock()
        self._local = threading.local()
        self._closed = False
        self._writer = self._open_writer(inspect)
        self._writer_thread = threading.Thread(target=self._write_loop, name="hermes-db-writer", daemon=True)
        self._writer_thread.start()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="hermes-db-reader")

    async def write(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in a write transaction. When this returns, what it wrote is on the disk."""
        self._check_open()
        done: Future[T] = Future()
        self._writes.put(_Write(run, done))
        return await asyncio.wrap_future(done)

    async def look(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot of the writer's connection; what it writes is undone. Keep it short:
        writes wait meanwhile."""
        self._check_open()
        done: Future[T] = Future()
        self._writes.put(_Look(run, done))
        return await asyncio.wrap_future(done)

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot. It cannot write."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, run)

    async def close(self) -> None:
        """Finish every accepted write, then close the file. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._writes.put(None)
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._readers.shutdown()
        self._writer_thread.join()
        for connection in self._connections:
            connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self.path} is closed")

    def _open_writer(self, inspect: Callable[[Tx], None]) -> sqlite3.Connection:
        with self._translated():
            writer = self._connect(timeout=0.0)
            try:
                self._wait_for_lock(lambda: inspect(writer))
                self._wait_for_lock(lambda: writer.execute("PRAGMA journal_mode = WAL"))
                writer.execute("PRAGMA synchronous = FULL")
                writer.execute("PRAGMA secure_delete = ON")
                writer.execute("PRAGMA temp_store = MEMORY")
            except BaseException:
                writer.close()
                raise
            return writer

    def _wait_for_lock(self, act: Callable[[], object]) -> None:
        """Do what needs a lock, trying again for as long as we may wait."""
        deadline = time.monotonic() + self._lock_timeout
        while True:
            try:
                act()
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            else:
                return
            time.sleep(random.uniform(*LOCK_PAUSE))

    def _connect(self, *, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.text_factory = read_text
        with self._connections_guard:
            self._connections.append(connection)
        return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, self.path) from error
        except StopIteration:  # a future cannot carry it: its caller would wait for ever
            raise RuntimeError("a transaction's function raised StopIteration") from None

    def _read(self, run: Callable[[Tx], T]) -> T:
        with self._translated():
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._connect(timeout=self._lock_timeout)
                connection.execute("PRAGMA query_only = ON")
                self._local.connection = connection
            connection.execute("BEGIN")
            return _run_and_undo(connection, run)

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
            wanted = [write for write in batch if write.done.set_running_or_notify_cancel()]
            for look in (write for write in wanted if isinstance(write, _Look)):
                self._answer(look)
            if writes := [write for write in wanted if not isinstance(write, _Look)]:
                self._commit(writes)
            if last:
                break

    def _answer(self, look: _Look[Any]) -> None:
        try:
            with self._translated():
                self._wait_for_lock(self._take_snapshot)
                result = _run_and_undo(self._writer, look.run)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            look.done.set_exception(error)
            return
        look.done.set_result(result)

    def _take_snapshot(self) -> None:
        self._writer.execute("BEGIN")
        try:
            self._writer.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            self._writer.execute("ROLLBACK")
            raise

    def _commit(self, batch: list[_Write[Any]]) -> None:
        results: list[tuple[_Write[Any], Any]] = []
        try:
            with self._translated():
                self._wait_for_lock(lambda: self._writer.execute("BEGIN IMMEDIATE"))
                for write in batch:
                    self._run_in_savepoint(write, results)
                self._wait_for_lock(lambda: self._writer.execute("COMMIT"))
        except BaseException as error:  # noqa: BLE001 - handed to every caller whose write did not reach the disk
            with suppress(sqlite3.Error):  # a rollback that fails shows at the next BEGIN
                self._writer.execute("ROLLBACK")
            for write in batch:
                if not write.done.done():
                    write.done.set_exception(error)
            return
        for write, result in results:
            write.done.set_result(result)

    def _run_in_savepoint(self, write: _Write[Any], results: list[tuple[_Write[Any], Any]]) -> None:
        self._writer.execute("SAVEPOINT one")
        try:
            with self._translated():
                result = write.run(self._writer)
        except BaseException as error:
            if not self._writer.in_transaction:  # SQLite gave up the whole transaction (disk full, I/O error)
                raise
            self._writer.execute("ROLLBACK TO one")
            self._writer.execute("RELEASE one")
            write.done.set_exception(error)
            return
        self._writer.execute("RELEASE one")
        results.append((write, result))


def _run_and_undo(connection: sqlite3.Connection, run: Callable[[Tx], T]) -> T:
    try:
        return run(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
