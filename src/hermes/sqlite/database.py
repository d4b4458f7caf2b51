"""An open file with one writer and a few readers.

`look` reads through the writer's own connection: only there can SQLite distinguish our own changes from those of other
processes (`data_version`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Literal

from hermes.sqlite.connection import Opened, T, Tx, identity, wait_for_lock
from hermes.sqlite.faults import translated
from hermes.sqlite.log import empty_log
from hermes.sqlite.reading import Readers, ReadLane
from hermes.sqlite.writer import Writer

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
