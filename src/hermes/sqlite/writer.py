"""The thread that writes.

Writes that wait at the same moment share one transaction and so one fsync; each runs in a savepoint of its own, so
that one that fails takes nothing else with it. A write is acknowledged after its COMMIT and not before, and only while
the file is where it was: one that was deleted under us takes every write and keeps none.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic

from msgspec import Struct

from hermes.errors import StoreGoneError
from hermes.sqlite.connection import Opened, T, Tx, identity, wait_for_lock
from hermes.sqlite.faults import translated
from hermes.sqlite.thread_results import ThreadResult, awaited_result, hand_back

GROUP_LIMIT = 128
"""How many waiting writes share one commit."""


class _Task(Struct, frozen=True):
    run: Callable[[Any], Any]
    answer: ThreadResult
    commits: bool


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
        """Run `run` in a write transaction; done when that is committed."""
        return await self._accept(run, commits=True)

    async def look(self, run: Callable[[Tx], T]) -> T:
        """Run `run` on one snapshot; what it writes is undone."""
        return await self._accept(run, commits=False)

    def stop(self) -> None:
        """Finish what was accepted, then end. Nothing may be handed over after this."""
        self._tasks.put(None)

    def join(self) -> None:
        """Wait for the end, then close the connection. Twice is fine."""
        self._thread.join()
        self._opened.tx.close()

    def _accept(self, run: Callable[[Tx], T], *, commits: bool) -> asyncio.Future[T]:
        task = _Task(run, awaited_result(), commits)
        self._tasks.put(task)
        return task.answer.caller

    def _work(self) -> None:
        """Must not raise: whatever goes wrong belongs to the tasks that were under way."""
        while (first := self._tasks.get()) is not None:
            batch = [first]
            last = False
            while len(batch) < GROUP_LIMIT and not self._tasks.empty():
                following = self._tasks.get()
                if following is None:
                    last = True
                    break
                batch.append(following)
            self._do([task for task in batch if not task.answer.caller.cancelled()])
            if last:
                break
            del first, batch  # else this thread would keep their objects alive until the next call

    def _do(self, tasks: list[_Task]) -> None:
        looks, writes = [task for task in tasks if not task.commits], [task for task in tasks if task.commits]
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
                    raise StoreGoneError(f"{self._path} was deleted, moved or replaced while it was in use")
        except BaseException as error:  # noqa: BLE001 - handed to every caller whose write did not reach the disk
            with suppress(sqlite3.Error):  # a rollback that fails shows at the next BEGIN
                self._raw.execute("ROLLBACK")
            for write in batch:
                write.answer.error = write.answer.error or error

    def _run_in_savepoint(self, write: _Task) -> None:
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
