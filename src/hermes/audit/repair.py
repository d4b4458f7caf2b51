"""Repairs what an audit found: a backup first, then a few transactions that delete nothing. `restore` is the way back:
a backup replaces the store file, whatever files are beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hermes.audit.audit import find_damage
from hermes.audit.backup import back_up, check_sound, copy_into, free_name, open_copy, other_users
from hermes.audit.case import read_case
from hermes.audit.crossing import Crossing, find_crossings
from hermes.audit.damage import Bind, Damage, Detach, End, Hide, Reopen, Restore
from hermes.audit.log import audit_log
from hermes.clock import Clock
from hermes.db.engine import Tx
from hermes.errors import StoreBusyError, StoreDamagedError, StoreError, UsageError
from hermes.home import Home
from hermes.store.mended import hide_rows, restore_rows
from hermes.store.store import Store

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
