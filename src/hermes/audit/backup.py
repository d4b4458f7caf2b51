"""A copy of a store file as it is now, checked before anything is changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from hermes.errors import StoreDamagedError, StoreFullError
from hermes.sqlite.faults import translate
from hermes.store.reading import open_unchanged


def back_up(path: Path, *, now: float, lock_timeout: float) -> Path:
    """Copy `path` to `<name>.backup-<UTC time>` beside it, for its owner alone.

    The name is given when the copy is whole and checked: half a backup never looks like one. On failure none is left.
    """
    target = _free_name(path, now)
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with open_unchanged(path, lock_timeout=lock_timeout) as source:
            source.execute("ROLLBACK")  # the backup takes a snapshot of its own
            _copy(source, unfinished)
        _check(unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise StoreFullError(f"cannot make the backup {target} ({error.strerror}); nothing was changed") from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return target


def _free_name(path: Path, now: float) -> Path:
    stamp = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    names = (path.with_name(f"{path.name}.backup-{stamp}{end}") for end in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(name for name in names if not name.exists())


def _copy(source: sqlite3.Connection, target: Path) -> None:
    try:
        with closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA synchronous = FULL")
            source.backup(copy)
    except sqlite3.Error as error:
        kind = type(translate(error, target))
        raise kind(f"cannot make the backup {target} ({error}); nothing was changed") from error


def _check(target: Path) -> None:
    """Read the copy from end to end."""
    try:
        with closing(sqlite3.connect(f"{target.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as copy:
            found = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(1)")]
    except sqlite3.Error as error:
        raise StoreDamagedError(f"the backup {target} cannot be read ({error}); nothing was changed") from error
    if found != ["ok"]:
        raise StoreDamagedError(f"the backup {target} is not sound ({found[0]}); nothing was changed")
