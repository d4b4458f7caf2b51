"""The way back: a backup takes the place of the store file, whatever lies beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hermes.audit.backup import back_up, check_sound, copy_into, free_name
from hermes.audit.users import other_users
from hermes.errors import StoreBusyError, StoreDamagedError, StoreError, UsageError

BESIDE = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Restored:
    """What took the place, and where that which was there is kept; None where nothing was there."""

    backup: Path
    kept: Path | None


def restore(path: Path, backup: Path, *, now: float, lock_timeout: float) -> Restored:
    """Make `path` hold what `backup` holds. Killed at any moment, it holds the one or the other, whole.

    Copying the file would leave the log of the old one beside it, which SQLite would then write into the new one. So
    SQLite itself takes the pages over; a file that it cannot open is moved aside with everything beside it.
    """
    _check_backup(path, backup)
    if users := other_users(path):
        ids = ", ".join(map(str, users))
        raise StoreBusyError(f"process {ids} has {path} open; nothing was changed", hint="End it first")
    kept = _keep(path, now, lock_timeout) if path.exists() else None
    with closing(_read_only(backup)) as source:
        copy_into(source, path)
    return Restored(backup, kept)


def _check_backup(path: Path, backup: Path) -> None:
    if not backup.is_file():
        raise UsageError(f"there is no backup {backup}", hint=f"`ls {path}.backup-*` shows them")
    if path.exists() and backup.samefile(path):
        raise UsageError(f"{backup} is the store itself", hint=f"`ls {path}.backup-*` shows its backups")
    check_sound(backup)
    with closing(_read_only(backup)) as source:
        names = {row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"sessions", "messages"} <= names:
        raise StoreDamagedError(f"{backup} is not a backup of a hermes store; nothing was changed")


def _keep(path: Path, now: float, lock_timeout: float) -> Path:
    """A backup of what is there; what is too damaged for one is moved aside as it is."""
    try:
        return back_up(path, now=now, lock_timeout=lock_timeout)
    except StoreDamagedError:
        aside = free_name(path, now, "damaged")
        for there in _lying_beside(path):
            there.rename(aside.with_name(aside.name + there.name.removeprefix(path.name)))
        return aside
    except StoreError as error:
        raise type(error)(f"{error.message}; nothing was restored", hint=error.hint) from error


def _lying_beside(path: Path) -> Iterator[Path]:
    return (there for end in BESIDE if (there := path.with_name(path.name + end)).exists())


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
