"""A copy of a store file as it is now, checked before anything is changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from hermes.db.faults import translate
from hermes.errors import StoreDamagedError, StoreError, StoreFullError
from hermes.store.reading import open_unchanged


def back_up(path: Path, *, now: float, lock_timeout: float) -> Path:
    """Copy `path` to `<name>.backup-<UTC time>` beside it, for its owner alone. On any failure no copy is left."""
    target = _claim(path, now)
    try:
        with open_unchanged(path, lock_timeout=lock_timeout) as source:
            source.execute("ROLLBACK")  # the backup takes a snapshot of its own
            _copy(source, target)
        _check(target)
        _sync(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _claim(path: Path, now: float) -> Path:
    """A new, empty file that only its owner may read."""
    stamp = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    for number in count(1):
        target = path.with_name(f"{path.name}.backup-{stamp}" + (f"-{number}" if number > 1 else ""))
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            continue
        except OSError as error:
            raise _no_backup(target, str(error.strerror)) from error
        return target
    raise AssertionError("count() does not end")


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


def _sync(target: Path) -> None:
    try:
        with target.open("rb+") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise _no_backup(target, str(error.strerror)) from error


def _no_backup(target: Path, why: str) -> StoreError:
    return StoreFullError(f"cannot make the backup {target} ({why}); nothing was changed")
