"""Faults: the errors that SQLite's result codes become, in one table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
