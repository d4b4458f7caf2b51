"""Putting a backup back: read whole and checked beside the home, then home and backup change places in one step.

Killed at any moment, the home is the one or the other, whole; what was there before stays beside it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes.audit.backup import check_sound, users_below
from hermes.clock import SystemClock
from hermes.config_file import load_shared_env
from hermes.embedded.connect import find_running
from hermes.embedded.place import find_place
from hermes.errors import BackupError, HermesError, UsageError
from hermes.files import FREE_SPACE, NO_ROOM
from hermes.home import Home
from hermes.owner.backup import (
    HOME,
    MEMORY,
    OUTSIDE,
    BackupProgress,
    Manifest,
    SavedFile,
    count_rows,
    make_workshop,
    read_archive,
    read_manifest,
)
from hermes.store.inbox import running_gateway
from hermes.store.reading import lend_tables, open_unchanged

FREE_BYTES = 64 * 1024 * 1024
"""Disk space that a restore leaves free."""
RESTORE_LOCK_TIMEOUT_SECONDS = 5.0
AT_WORKING_FOLDER, EXCHANGE, MAC_SWAP = -100, 2, 2
"""Arguments of `renameat2` and `renamex_np`."""
HOW_TO_END = (
    "End it first: leave a chat, `hermes gateway stop` ends a gateway, `hermes memory stop` the memory server; what "
    "was just used may end by itself in a moment"
)
CANNOT_SWAP = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


class RestoredHome(Struct, frozen=True):
    """The folders that were replaced, with the names under which the previous ones are kept."""

    manifest: Manifest
    kept: dict[str, str]
    outside: Mapping[str, str]
    """Files of neither folder: their current path and their original one."""


def check_restore(home: Home, path: Path) -> Manifest:
    """Read the manifest and check that this home can be restored from it now. Raises BackupError or UsageError."""
    found = read_manifest(path)
    if (found.profile is None) != (home.profile is None):
        what = "all profiles" if found.profile is None else f"the profile '{found.profile}' alone"
        name = found.profile or "default"
        raise UsageError(f"{path} is a backup of {what}", hint=f"`hermes -p {name} restore {path}` puts it there")
    refuse_users(home)
    return found


def refuse_users(home: Home) -> None:
    """Raise UsageError if a process of this home is running."""
    place = find_place(home, _env(home))
    users = set(users_below(home.path))
    if home.profile is None:
        users |= set(users_below(place.folder))
        with suppress(HermesError):
            users |= set() if (server := find_running(place)) is None else {server.pid}
    if users or any(_has_gateway(one) for one in (home.all() if home.profile is None else [home])):
        who = f"process {', '.join(map(str, sorted(users)))}" if users else "a gateway"
        raise UsageError(f"{who} uses {home.path}; nothing was changed", hint=HOW_TO_END)


def _has_gateway(home: Home) -> bool:
    """Return True if a gateway holds its lease. An unreadable store has none: broken homes are what people restore."""
    with suppress(HermesError):
        if home.state_file.exists():
            with open_unchanged(home.state_file, lock_timeout=RESTORE_LOCK_TIMEOUT_SECONDS) as tx:
                lend_tables(tx)
                return running_gateway(tx, now=SystemClock().now()) is not None
    return False


def _env(home: Home) -> Mapping[str, str]:
    """Return the environment; for a home with a broken `.env`, that of the process alone."""
    try:
        return load_shared_env(home)
    except HermesError:
        return os.environ


def restore_backup(home: Home, path: Path, progress: BackupProgress) -> RestoredHome:
    """Replace the home, and for a full backup the memory folder, by the contents of a backup. Raises BackupError and
    changes nothing."""
    parent = home.path.parent
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with make_workshop(parent) as folder:
            found = check_restore(home, path)
            _check_room(parent, found)
            read_archive(path, folder, progress)
            for one in found.files:
                _check_database(folder / one.name, one)
            return _put_in_place(home, folder, found)
    except OSError as error:
        hint = FREE_SPACE if error.errno in NO_ROOM else "Check its owner and permissions"
        what = "a disk is mounted there" if error.errno == errno.EBUSY else error.strerror or error
        raise BackupError(f"cannot restore {home.path}: {what}; nothing was changed", hint=hint) from error


def _check_room(parent: Path, found: Manifest) -> None:
    free = shutil.disk_usage(parent).free
    if found.total_bytes + FREE_BYTES > free:
        needed, there = found.total_bytes / 1_000_000, free / 1_000_000
        raise BackupError(
            f"the backup needs {needed:,.0f} MB below {parent}, and {there:,.0f} MB are free; nothing was changed",
            hint=FREE_SPACE,
        )


def _check_database(path: Path, one: SavedFile) -> None:
    if not one.rows:
        return
    check_sound(path)
    if (there := count_rows(path, path.name)) != one.rows:
        raise BackupError(f"{one.name} has {there} rows, and {one.rows} were saved; nothing was changed", hint="")


def _put_in_place(home: Home, folder: Path, found: Manifest) -> RestoredHome:
    """Swap the extracted folders with the present ones. The home comes first: if the memory then has more than the
    home's outbox marks as delivered, entries are delivered twice and none is lost."""
    new, memory = folder / HOME, folder / MEMORY
    new.mkdir(mode=0o700, exist_ok=True)
    was_outside = [one for one in found.files if one.name.startswith(f"{OUTSIDE}/")]
    if was_outside:
        (folder / OUTSIDE).rename(new / "restored-outside")
    own = find_place(home, _env(Home(new))).folder
    is_inside = own.is_relative_to(home.path)
    if memory.is_dir() and is_inside:
        inside = new / own.relative_to(home.path)
        inside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        memory.rename(inside)
    refuse_users(home)  # again: reading took a while
    pairs = [(new, home.path), *([(memory, own)] if memory.is_dir() else [])]
    kept = dict(_take_places(pairs))
    shown = {str(home.path / "restored-outside" / one.name.partition("/")[2]): one.name for one in was_outside}
    return RestoredHome(found, kept, {now: found.outside.get(name, "") for now, name in shown.items()})


def _take_places(pairs: list[tuple[Path, Path]]) -> Iterator[tuple[str, str]]:
    """Replace each old folder by a new one. Returns the old folders and the names under which they are kept."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for new, old in pairs:
        if not old.exists() or (old.is_dir() and not old.is_symlink() and not any(old.iterdir())):
            old.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.replace(old)
            continue
        real = old.resolve()  # a home that is a link stays one
        aside = next(
            name for n in range(1000) if not (name := real.with_name(f"{real.name}.aside-{stamp}{n or ''}")).exists()
        )
        new.rename(aside)  # out of the workshop, which is emptied: from now on nothing of it is ever deleted
        swap(aside, real)
        yield str(old), str(aside)


def swap(one: Path, other: Path) -> None:
    """Exchange the names of two folders, atomically where the system can."""
    libc: Any = None if sys.platform == "win32" else ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(*names, MAC_SWAP)
    else:
        return _swap_by_renaming(one, other)
    if failed:
        number = ctypes.get_errno()
        if number in CANNOT_SWAP:
            return _swap_by_renaming(one, other)
        raise OSError(number, os.strerror(number), str(other))
    return None


def _swap_by_renaming(one: Path, other: Path) -> None:
    between = one.with_name(f"{one.name}-before")
    other.rename(between)
    try:
        one.rename(other)
    except OSError:
        between.rename(other)
        raise
    between.rename(one)
