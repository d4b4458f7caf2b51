"""An open file with one writer and a few readers.

`look` reads through the writer's own connection: only there can SQLite distinguish our own changes from those of other
processes (`data_version`).

The write-ahead log, which keeps deleted text until it is overwritten.

The writer thread.

Writes that wait at the same moment share one transaction and so one fsync. Each runs in a savepoint, so that a failed
one affects no other. Writes of heavy clients come last, each in a transaction of its own, so that others wait for at
most one of them. A write is acknowledged after its COMMIT, and only if the file is still in its place: writes into a
deleted file succeed and are lost.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal

from msgspec import Struct

from hermes.errors import StoreBusyError, StoreGoneError
from hermes.sqlite.connection import Opened, T, Tx, identity, translated, wait_for_lock
from hermes.sqlite.reading import Readers, ReadLane
from hermes.sqlite.scheduling import ScheduledClient, ThreadResult, awaited_result, hand_back, scheduled_client

GONE = "was deleted, moved or replaced while it was in use"
LOG_TIMEOUT_SECONDS = 1.0
RETRY_PAUSE_SECONDS = 0.05
"""Maximum waiting time, and pause between two attempts: the log can be truncated only while nobody reads from it."""


def empty_log(path: Path) -> None:
    """Copy the log into its file and truncate it. Raises StoreBusyError if readers or writers never pause."""
    deadline = time.monotonic() + LOG_TIMEOUT_SECONDS
    with (
        translated(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0.0)) as connection,
    ):
        # The first copies without blocking writers, so that little is left for the second.
        while not (_checkpoint(connection, "PASSIVE") and _checkpoint(connection, "TRUNCATE")):
            if time.monotonic() >= deadline:
                raise StoreBusyError(f"the log of {path} is in use")
            time.sleep(RETRY_PAUSE_SECONDS)


def _checkpoint(connection: sqlite3.Connection, kind: str) -> bool:
    """Return True if nobody was in the way."""
    busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()
    return not busy


MAX_GROUPED_WRITES = 128
"""Maximum number of waiting writes that share one commit."""


class _Task(Struct, frozen=True):
    run: Callable[[Any], Any]
    answer: ThreadResult
    commits: bool
    who: ScheduledClient | None
    is_heavy: bool


class Writer(Generic[Tx]):
    """Runs functions on its own connection, one after another."""

    def __init__(self, path: Path, opened: Opened[Tx], *, lock_timeout: float) -> None:
        self._path = path
        self._opened = opened
        self._raw = opened.raw
        self._lock_timeout = lock_timeout
        self._file = identity(path)
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"{path.name} writer", daemon=True)
        self._thread.start()

    async def write(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in a write transaction; return once it is committed."""
        return await self._accept(run, commits=True)

    async def look(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one snapshot; its changes are undone."""
        return await self._accept(run, commits=False)

    def stop(self) -> None:
        """Finish accepted work, then end. Nothing may be submitted after this."""
        self._tasks.put(None)

    def join(self) -> None:
        """Wait for the end, then close the connection. Safe to call twice."""
        self._thread.join()
        self._opened.tx.close()

    def _accept(self, run: Callable[[Tx], T], *, commits: bool) -> asyncio.Future[T]:
        who = scheduled_client.get()
        task = _Task(run, awaited_result(), commits, who, is_heavy=who is not None and who.rank > 0)
        self._tasks.put(task)
        return task.answer.caller

    def _work(self) -> None:
        """Run until stopped. Never raises: every error belongs to the tasks that were running."""
        heavy: deque[_Task] = deque()
        is_open = True
        while is_open or heavy:
            tasks, is_open = self._take(wait=not heavy) if is_open else ([], False)
            heavy.extend(task for task in tasks if task.is_heavy)
            self._do([task for task in tasks if not task.is_heavy])
            if heavy:
                self._do([heavy.popleft()])
            del tasks  # else this thread would keep their objects alive until the next call

    def _take(self, *, wait: bool) -> tuple[list[_Task], bool]:
        """Return the submitted tasks, and whether more may come."""
        tasks: list[_Task] = []
        while len(tasks) < MAX_GROUPED_WRITES and ((wait and not tasks) or not self._tasks.empty()):
            task = self._tasks.get()
            if task is None:
                return tasks, False
            tasks.append(task)
        return tasks, True

    def _do(self, tasks: list[_Task]) -> None:
        wanted = [task for task in tasks if not task.answer.caller.cancelled()]
        looks, writes = [task for task in wanted if not task.commits], [task for task in wanted if task.commits]
        for look in looks:
            look.answer.work_out(partial(self._look, look.run))
        hand_back([look.answer for look in looks])
        if writes:
            self._commit(writes)
            hand_back([write.answer for write in writes])

    def _look(self, run: Callable[[Tx], T]) -> T:
        with translated(self._path):
            wait_for_lock(self._take_snapshot, self._lock_timeout)
            return self._opened.run_and_undo(run)

    def _take_snapshot(self) -> None:
        self._raw.execute("BEGIN")
        try:
            self._raw.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            self._raw.execute("ROLLBACK")
            raise

    def _commit(self, batch: list[_Task]) -> None:
        try:
            with translated(self._path):
                wait_for_lock(lambda: self._raw.execute("BEGIN IMMEDIATE"), self._lock_timeout)
                for write in batch:
                    self._run_in_savepoint(write)
                wait_for_lock(lambda: self._raw.execute("COMMIT"), self._lock_timeout)
                if identity(self._path) != self._file:
                    raise StoreGoneError(f"{self._path} {GONE}")
        except BaseException as error:  # noqa: BLE001 - handed to every caller whose write did not reach the disk
            with suppress(sqlite3.Error):  # a rollback that fails shows at the next BEGIN
                self._raw.execute("ROLLBACK")
            for write in batch:
                write.answer.error = write.answer.error or error

    def _run_in_savepoint(self, write: _Task) -> None:
        begun = time.thread_time()
        self._raw.execute("SAVEPOINT one")
        try:
            with translated(self._path):
                write.answer.result = self._opened.run(write.run, undo=lambda: self._raw.execute("ROLLBACK TO one"))
        except BaseException as error:
            if not self._raw.in_transaction:  # SQLite gave up the whole transaction (disk full, I/O error)
                raise
            self._raw.execute("ROLLBACK TO one")
            write.answer.error = error
        self._raw.execute("RELEASE one")
        if write.who is not None:
            write.who.took(time.thread_time() - begun)


Synchronous = Literal["FULL", "NORMAL"]
"""FULL: an acknowledged write is on disk. NORMAL: a power cut may undo it, as a whole."""


def accept(tx: object) -> None:
    """Accept any file and change nothing: the default of `inspect` and `prepare`."""


class SqliteDatabase(Generic[Tx]):
    """A file whose `write` and `read` run a function in a transaction and return its result. Errors are StoreErrors."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], Opened[Tx]],
        *,
        lock_timeout: float,
        lanes: Sequence[ReadLane],
        read_seconds: float | None = None,
        synchronous: Synchronous = "FULL",
        pragmas: tuple[str, ...] = (),
        inspect: Callable[[Tx], None] = accept,
        prepare: Callable[[Tx], None] = accept,
    ) -> None:
        """Open a file or create it. `inspect` sees it before any change, and raises an error to refuse it; `prepare` is
        the first write. A read takes at most `read_seconds`."""
        self.path = path
        self._connect = connect
        self._lock_timeout = lock_timeout
        self._pragmas = (f"synchronous = {synchronous}", "secure_delete = ON", *pragmas)
        self._closed = False
        self._log_path = path.with_name(f"{path.name}-wal")
        self._writer = Writer(path, self._open_to_write(inspect, prepare), lock_timeout=lock_timeout)
        self._readers = Readers(path, connect, lock_timeout=lock_timeout, lanes=lanes, seconds=read_seconds)
        self._file, self._log = identity(path), identity(self._log_path)

    async def write(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in a write transaction. When this returns, its changes are committed."""
        self._check_open()
        return await self._writer.write(run)

    async def look(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot of the writer's connection; its changes are undone. Keep it short:
        writes wait meanwhile."""
        self._check_open()
        return await self._writer.look(run)

    async def read(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one consistent snapshot. It cannot write, and may be started more than once."""
        self._check_open()
        return await self._readers.read(run)

    async def empty_log(self) -> None:
        """Copy the write-ahead log into the file and truncate it: deleted or overwritten text is then in neither.
        Raises StoreBusyError if others read or write all the time."""
        self._check_open()
        await asyncio.to_thread(empty_log, self.path)

    def is_replaced(self) -> bool:
        """Return True if the file or its write-ahead log was deleted, moved or replaced while open. A log of ours that
        is left beside another file is renamed, since SQLite would apply it to that file. Its index is deleted: while
        any process has it open, nobody could read the other file."""
        file, log = identity(self.path), identity(self._log_path)
        self._log = self._log or log
        if (file, log) == (self._file, self._log):
            return False
        if file not in (None, self._file) and log is not None and log == self._log:
            with suppress(OSError):
                self._log_path.replace(f"{self._log_path}.orphaned")
                self.path.with_name(f"{self.path.name}-shm").unlink()
        return True

    async def close(self) -> None:
        """Finish every accepted write, then close the file. Safe to call twice."""
        self._stop()
        await asyncio.to_thread(self._shut)

    def _stop(self) -> None:
        if not self._closed:
            self._closed = True
            self._writer.stop()

    def _shut(self) -> None:
        self._readers.close()
        self._writer.join()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self.path} is closed")

    def _open_to_write(self, inspect: Callable[[Tx], None], prepare: Callable[[Tx], None]) -> Opened[Tx]:
        with translated(self.path):
            opened = self._connect()
            try:
                wait_for_lock(lambda: opened.run(inspect), self._lock_timeout)
                wait_for_lock(lambda: opened.raw.execute("PRAGMA journal_mode = WAL"), self._lock_timeout)
                for pragma in self._pragmas:
                    opened.raw.execute(f"PRAGMA {pragma}")
                if prepare is not accept:
                    self._write_first(opened, prepare)
            except BaseException:
                opened.tx.close()
                raise
            return opened

    def _write_first(self, opened: Opened[Tx], prepare: Callable[[Tx], None]) -> None:
        wait_for_lock(lambda: opened.raw.execute("BEGIN IMMEDIATE"), self._lock_timeout)
        opened.raw.execute("SAVEPOINT one")
        opened.run(prepare, undo=lambda: opened.raw.execute("ROLLBACK TO one"))
        wait_for_lock(lambda: opened.raw.execute("COMMIT"), self._lock_timeout)
