"""Connections to one file, and the wait for its locks."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from hermes.sqlite.faults import is_busy

DECODE_ERROR_PREFIX = "Could not decode to UTF-8"
"""Prefix of the error message of Python's sqlite3 for text that is not UTF-8."""
LOCK_PAUSE_SECONDS = (0.001, 0.005)
"""Range of the pause between two attempts to get the write lock. SQLite's own pauses grow, so that the longest waiter
would come last."""


class Closable(Protocol):
    """An object with a `close` method."""

    def close(self) -> None:
        """Release its resources."""


T = TypeVar("T")
Tx = TypeVar("Tx", bound=Closable)
"""Type of the transaction that functions receive."""


class Opened(Struct, Generic[Tx], frozen=True):
    """A connection: as the driver has it, and as functions see it. Closing `tx` closes both."""

    raw: sqlite3.Connection
    tx: Tx

    def run(self, run: Callable[[Tx], T], undo: Callable[[], object] = lambda: None) -> T:
        """Return the result of `run`. If it meets text that is not UTF-8, call `undo` and run it again; from then on
        bad bytes are read as U+FFFD. Decoding every text in Python would slow fetching down by two thirds."""
        try:
            return run(self.tx)
        except sqlite3.OperationalError as error:
            if self.raw.text_factory is read_text or not str(error).startswith(DECODE_ERROR_PREFIX):
                raise
        undo()
        self.raw.text_factory = read_text
        return run(self.tx)

    def run_and_undo(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in the open transaction, then roll back."""
        try:
            return self.run(run)
        finally:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection that waits for no lock, begins no transaction by itself, and may be used by any thread."""
    return sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)


def connect_plainly(path: Path) -> Opened[sqlite3.Connection]:
    """Return a connection that functions see as the driver has it, with rows by column name."""
    connection = connect(path)
    connection.row_factory = sqlite3.Row
    return Opened(connection, connection)


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file with this name, or None."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def read_text(raw: bytes) -> str:
    """Decode stored text, with U+FFFD in place of bytes that are not UTF-8."""
    return raw.decode("utf-8", "replace")


def wait_for_lock(act: Callable[[], object], timeout: float) -> None:
    """Call `act`, which needs a lock, and retry for `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            act()
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(random.uniform(*LOCK_PAUSE_SECONDS))
