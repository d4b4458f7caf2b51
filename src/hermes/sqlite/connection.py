"""Connections to one file, and the wait for its locks.

Faults: the errors that SQLite's result codes become, in one table.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from hermes.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreMovedError,
    StoreReadOnlyError,
    StoreStoppedError,
)

# An extended code wins over its primary one.
FAULTS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "{path} is locked by another process"),
    sqlite3.SQLITE_LOCKED: (StoreBusyError, "{path} is locked by another process"),
    sqlite3.SQLITE_PROTOCOL: (StoreBusyError, "{path} is locked by another process"),
    sqlite3.SQLITE_FULL: (StoreFullError, "no space left to write to {path}"),
    sqlite3.SQLITE_IOERR: (
        StoreFullError,
        "{path} cannot be read or written ({detail}); the disk may be full",
    ),
    sqlite3.SQLITE_INTERRUPT: (StoreStoppedError, "a read of {path} was stopped"),
    sqlite3.SQLITE_NOLFS: (StoreFullError, "{path} is larger than this file system allows"),
    sqlite3.SQLITE_IOERR_READ: (StoreDamagedError, "{path} cannot be read ({detail})"),
    sqlite3.SQLITE_IOERR_SHORT_READ: (StoreDamagedError, "{path} cannot be read ({detail})"),
    sqlite3.SQLITE_IOERR_CORRUPTFS: (StoreDamagedError, "{path} cannot be read ({detail})"),
    sqlite3.SQLITE_IOERR_DATA: (StoreDamagedError, "{path} cannot be read ({detail})"),
    sqlite3.SQLITE_READONLY: (StoreReadOnlyError, "{path} is read-only"),
    sqlite3.SQLITE_PERM: (StoreReadOnlyError, "{path} is read-only"),
    sqlite3.SQLITE_CANTOPEN: (StoreReadOnlyError, "{path} cannot be opened"),
    sqlite3.SQLITE_CONSTRAINT_TRIGGER: (StoreMovedError, "{path}: {detail}"),
    sqlite3.SQLITE_CORRUPT: (StoreDamagedError, "{path} is damaged ({detail})"),
    sqlite3.SQLITE_NOTADB: (StoreDamagedError, "{path} is not a database"),
}


def is_busy(error: sqlite3.Error) -> bool:
    """Return True if a retry a little later may help."""
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)


def translate(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> StoreError:
    """Return the error to show for `error`. An SQLite message that cannot be decoded quotes a damaged file."""
    if isinstance(error, UnicodeDecodeError):
        return StoreDamagedError(f"{path} is damaged (its tables have names that are no text)")
    exact = FAULTS.get(getattr(error, "sqlite_errorcode", 0))
    kind, text = exact or FAULTS.get(_primary_code(error), (StoreError, "{path}: {detail}"))
    return kind(text.format(path=path, detail=error))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as StoreErrors."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, path) from error
    except StopIteration:  # a future cannot carry it: its caller would wait for ever
        raise RuntimeError("a transaction's function raised StopIteration") from None


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that the Python module raises by itself have no code.
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


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
