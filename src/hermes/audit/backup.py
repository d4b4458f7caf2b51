"""Backups of a store file, verified before the store is changed, and the processes that have the file open."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from hermes.errors import StoreDamagedError, StoreFullError, StoreReadOnlyError
from hermes.sqlite.faults import translate
from hermes.store.reading import open_unchanged

UNFINISHED = ".unfinished"


def back_up(path: Path, *, now: float, lock_timeout: float) -> Path:
    """Copy `path` to `<name>.backup-<UTC time>` beside it, with mode 0600.

    The copy gets its name after verification, so an incomplete one never looks like a backup. A failure leaves no copy,
    and leftovers of a killed backup are removed first. Raises StoreReadOnlyError for a file that cannot be written,
    because it will not be changed.
    """
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise StoreReadOnlyError(
            f"{path} and its folder cannot be written; nothing was changed", hint="Check their owner"
        )
    clear_litter(path)
    target = free_name(path, now, "backup")
    unfinished = target.with_name(f"{target.name}{UNFINISHED}")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with open_unchanged(path, lock_timeout=lock_timeout) as source:
            source.execute("ROLLBACK")  # the backup takes its own snapshot
            copy_into(source, unfinished)
        check_sound(unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(target)
    except OSError as error:
        raise StoreFullError(f"cannot make the backup {target} ({error.strerror}); nothing was changed") from error
    finally:
        clear_litter(path)
    return target


def clear_litter(path: Path) -> None:
    """Remove leftovers of failed or killed backups, but not of one that is running."""
    for left in path.parent.glob(f"{path.name}.backup-*{UNFINISHED}*"):
        if not other_users(left):
            left.unlink(missing_ok=True)


def free_name(path: Path, now: float, kind: str) -> Path:
    """Return `<name>.<kind>-<UTC time>` beside a file, or the next free name."""
    stamp = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    names = (path.with_name(f"{path.name}.{kind}-{stamp}{end}") for end in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(name for name in names if not name.exists())


def copy_into(source: sqlite3.Connection, target: Path) -> None:
    """Copy the database into `target` in one transaction; if killed, `target` is unchanged."""
    try:
        with closing(sqlite3.connect(target)) as copy:
            copy.execute("PRAGMA synchronous = FULL")
            source.backup(copy)
    except sqlite3.Error as error:
        kind = type(translate(error, target))
        raise kind(f"cannot write the copy {target} ({error}); nothing was changed") from error


def check_sound(target: Path) -> None:
    """Verify the copy by reading all of it. Raises StoreDamagedError."""
    try:
        with closing(open_copy(target)) as copy:
            found = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(1)")]
    except sqlite3.Error as error:
        raise StoreDamagedError(f"the backup {target} cannot be read ({error}); nothing was changed") from error
    if found != ["ok"]:
        raise StoreDamagedError(f"the backup {target} is not sound ({found[0]}); nothing was changed")


def open_copy(path: Path) -> sqlite3.Connection:
    """Open a copy read-only; no process may write to it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def other_users(path: Path) -> list[int]:
    """Return the ids of other processes that have a file open; empty where the system does not tell, or tells only the
    owner."""
    wanted = str(path.resolve())
    others = [entry for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid()]
    return sorted(int(entry.name) for entry in others if wanted in _open_files(entry))


def users_below(folder: Path) -> list[int]:
    """Return the processes that have a database below `folder` open, where the system says."""
    start = f"{folder.resolve()}{os.sep}"
    others = [entry for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid()]
    return sorted(
        int(entry.name)
        for entry in others
        if any(name.startswith(start) and name.endswith(".db") for name in _open_files(entry))
    )


def _open_files(process: Path) -> set[str]:
    names = set()
    try:
        for handle in (process / "fd").iterdir():
            try:
                names.add(str(handle.readlink()))
            except OSError:  # closed meanwhile
                continue
    except OSError:  # another person's process, or gone
        return names
    return names
