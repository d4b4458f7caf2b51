"""Repairs what an audit found: a backup first, then a few transactions that delete nothing. `restore` is the way back:
a backup replaces the store file, whatever files are beside it.

Backups of a store file, verified before the store is changed, and the processes that have the file open.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from hermes.audit.audit import find_damage
from hermes.audit.case import read_case
from hermes.audit.crossing import Crossing, find_crossings
from hermes.audit.damage import Bind, Damage, Detach, End, Hide, Reopen, Restore
from hermes.audit.log import audit_log
from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError, UsageError
from hermes.home import Home
from hermes.sqlite.connection import translate
from hermes.store.health import open_unchanged
from hermes.store.hidden import hide_rows, restore_rows
from hermes.store.store import Store

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


MAX_PASSES = 20
"""Maximum number of passes: a repair may reveal further damage."""
MAX_DAMAGES_PER_TRANSACTION = 100
"""Maximum number of damages repaired in one transaction."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair. `left` could not be repaired, because another process keeps changing it."""

    backup: Path
    mended: tuple[Damage, ...]
    left: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """The damage found, and SQLite's count of commits by other connections at that time."""

    others: int
    damage: list[Damage]


async def repair(home: Home, *, clock: Clock, lock_timeout: float) -> Repair:
    """Back up the file and repair it. Interrupted, it leaves each damage repaired or untouched; call it again."""
    backup = back_up(home.state_file, now=clock.now(), lock_timeout=lock_timeout)
    crossings = find_crossings(audit_log(home.log_file).operations)
    mended: list[Damage] = []
    async with await Store.open(
        home.state_file, clock=clock, lock_timeout=lock_timeout, old_routes_file=home.old_routes_file
    ) as store:
        seen = await store.look(lambda tx: _look(tx, home, crossings))
        for _ in range(MAX_PASSES):
            done = await _mend_all(store, home, crossings, seen)
            before, seen = seen, await store.look(lambda tx: _look(tx, home, crossings))
            mended += done
            if not seen.damage or (not done and seen.damage == before.damage):
                break
    return Repair(backup, tuple(mended), tuple(seen.damage))


async def _mend_all(store: Store, home: Home, crossings: Sequence[Crossing], seen: _Look) -> list[Damage]:
    """Repair damage, up to MAX_DAMAGES_PER_TRANSACTION in one transaction: each waits for the disk once."""

    def mend(tx: Tx, chosen: Sequence[Damage]) -> list[Damage]:
        there = seen if _committed_by_others(tx) == seen.others else _look(tx, home, crossings)
        still = chosen if there is seen else [damage for damage in chosen if damage in there.damage]
        for damage in still:
            _apply(tx, store, damage)
        return list(still)

    done: list[Damage] = []
    apart = list(_disjoint(seen.damage))
    for start in range(0, len(apart), MAX_DAMAGES_PER_TRANSACTION):
        done += await store.write(partial(mend, chosen=apart[start : start + MAX_DAMAGES_PER_TRANSACTION]))
    return done


def _disjoint(found: Iterable[Damage]) -> Iterator[Damage]:
    """Yield damages that share no session with an earlier one. The others are judged again after those repairs."""
    touched: set[str] = set()
    for damage in found:
        if touched.isdisjoint(damage.sessions):
            yield damage
            touched.update(damage.sessions)


def _look(tx: Tx, home: Home, crossings: Sequence[Crossing]) -> _Look:
    case = read_case(tx, home.old_routes_file)
    return _Look(_committed_by_others(tx), find_damage(tx, case, crossings))


def _committed_by_others(tx: Tx) -> int:
    return int(tx.execute("PRAGMA data_version").fetchone()[0])


def _apply(tx: Tx, store: Store, damage: Damage) -> None:
    now = store.clock.now()
    for step in damage.steps:
        match step:
            case Bind(key, session_id):
                store.routes.bind(tx, key, session_id, now=now)
            case End(session_id, reason):
                store.sessions.end(tx, session_id, reason, now=now)
            case Reopen(session_id):
                store.sessions.reopen(tx, session_id)
            case Detach(session_id):
                store.sessions.detach(tx, session_id)
            case Hide(message_ids):
                hide_rows(tx, message_ids, damage.code, now=now)
            case Restore(message_ids):
                restore_rows(tx, message_ids, damage.code, now=now)


STORE_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of `restore`: the backup that replaced the store, and where the previous store is kept (None without
    one)."""

    backup: Path
    kept: Path | None


def restore(path: Path, backup: Path, *, now: float, lock_timeout: float) -> Restored:
    """Replace the content of `path` by that of `backup`. Killed at any moment, `path` has one or the other, complete.

    Copying the file would leave the old WAL beside it, which SQLite would then apply to the new file. So SQLite itself
    copies the pages; a file that it cannot open is moved aside with all its companions.
    """
    _check_backup(path, backup)
    if users := other_users(path):
        ids = ", ".join(map(str, users))
        raise StoreBusyError(f"process {ids} has {path} open; nothing was changed", hint="End it first")
    kept = _keep(path, now, lock_timeout) if path.exists() else None
    with closing(open_copy(backup)) as source:
        copy_into(source, path)
    return Restored(backup, kept)


def _check_backup(path: Path, backup: Path) -> None:
    if not backup.is_file():
        raise UsageError(f"there is no backup {backup}", hint=f"`ls {path}.backup-*` shows them")
    if path.exists() and backup.samefile(path):
        raise UsageError(f"{backup} is the store itself", hint=f"`ls {path}.backup-*` shows its backups")
    check_sound(backup)
    with closing(open_copy(backup)) as source:
        names = {row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"sessions", "messages"} <= names:
        raise StoreDamagedError(f"{backup} is not a backup of a hermes store; nothing was changed")


def _keep(path: Path, now: float, lock_timeout: float) -> Path:
    """Back up the present store; if it is too damaged, move it aside unchanged."""
    try:
        return back_up(path, now=now, lock_timeout=lock_timeout)
    except StoreDamagedError:
        aside = free_name(path, now, "damaged")
        for end in STORE_FILE_SUFFIXES:
            if (there := path.with_name(path.name + end)).exists():
                there.rename(aside.with_name(aside.name + end))
        return aside
    except StoreError as error:
        raise type(error)(f"{error.message}; nothing was restored", hint=error.hint) from error
