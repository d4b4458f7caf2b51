"""The writer thread.

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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic

from msgspec import Struct

from hermes.errors import StoreGoneError
from hermes.sqlite.connection import Opened, T, Tx, identity, wait_for_lock
from hermes.sqlite.faults import translated
from hermes.sqlite.scheduling import Asker, asker
from hermes.sqlite.thread_results import ThreadResult, awaited_result, hand_back

MAX_GROUPED_WRITES = 128
"""Maximum number of waiting writes that share one commit."""


class _Task(Struct, frozen=True):
    run: Callable[[Any], Any]
    answer: ThreadResult
    commits: bool
    who: Asker | None
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
        who = asker.get()
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
                    raise StoreGoneError(f"{self._path} was deleted, moved or replaced while it was in use")
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
