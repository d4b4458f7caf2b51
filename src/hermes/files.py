"""Files of the home: read only when they are files, replaced in one step, for their owner alone."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from hermes.errors import HomeError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
T = TypeVar("T")
TRIES = 50
"""How often a file that another program changes is read anew before a change of ours is given up."""
MAX_FILE_BYTES = 64 * 1024 * 1024
ROOM = 256 * 1024
"""Bytes that must fit for a folder to have room."""
NO_FILE = "it is {}, not a file"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
FREE_SPACE = "Free some space and try again; what was saved before is untouched"


def check_file(path: Path) -> None:
    """Raise OSError at once unless `path` is a file: reading a pipe or a device may never end."""
    if (kind := stat.S_IFMT(path.stat().st_mode)) != stat.S_IFREG:
        raise OSError(errno.EINVAL, NO_FILE.format(KINDS.get(kind, "something else")), str(path))


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the contents of a file. Raises OSError at once for anything that is no file or has more than
    `max_bytes`."""
    check_file(path)
    if (size := path.stat().st_size) > max_bytes:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {max_bytes:,} are read", str(path))
    return path.read_bytes()


def unwritable(path: Path | str, error: OSError | RuntimeError) -> HomeError:
    """What tells a person why a file could not be written, and what to do."""
    hint = FREE_SPACE if isinstance(error, OSError) and error.errno in NO_ROOM else None
    return HomeError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}", hint=hint)


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner alone; its folder is made where it is missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    with replacing(path) as file:
        file.write(text)


def edit_file(path: Path, read: Callable[[], T], edit: Callable[[T], str]) -> bool:
    """Replace what `read` finds in a file by what `edit` makes of it, while no other process does that.

    Another program may not know of our lock: what it wrote before our last look, right before the file is replaced, is
    never written over. False when one keeps changing the file.
    """
    with locked(path):
        return edit_locked_file(path, read, edit)


def edit_locked_file(path: Path, read: Callable[[], T], edit: Callable[[T], str]) -> bool:
    """Do the same while the caller holds the lock."""
    return any(_edit_once(path, read, edit) for _ in range(TRIES))


def _edit_once(path: Path, read: Callable[[], T], edit: Callable[[T], str]) -> bool:
    seen = read()
    text = edit(seen)
    try:
        with replacing(path, lambda: read() == seen) as file:
            file.write(text)
    except _Changed:
        return False
    return True


class _Changed(Exception):
    """The old file stays after all."""


@contextmanager
def replacing(path: Path, holds: Callable[[], bool] = lambda: True) -> Iterator[TextIO]:
    """Write a file that replaces `path` in one step when all went well; until then the old one stays, and it stays when
    `holds`, asked right before that step, says so.

    A link stays a link: what it points to is replaced. What is no regular file (a pipe) is written to directly.
    """
    try:
        target = _follow(path)
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="") as file:
                yield file
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if not holds():
                raise _Changed
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that point at each other
        raise unwritable(path, error) from error


@contextmanager
def creating(path: Path) -> Iterator[TextIO]:
    """Write a file that is not there yet, for its owner alone. What could not be written whole is not left behind."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def check_room(folder: Path) -> None:
    """Raise OSError unless something can be written in `folder`. Nothing is left there."""
    with room_held(folder):
        pass


@contextmanager
def room_held(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold room on the disk of `folder` for what must be written there later, and yield a function that releases it.
    Raises OSError where nothing can be written. Nothing is left there."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM))
        file.flush()
        os.fsync(file.fileno())
        yield file.close


def _follow(path: Path) -> Path:
    """What a link leads to, which need not be there yet. Links that point at each other lead nowhere: Python 3.13 gives
    one of them back, older ones raise RuntimeError."""
    target = path.resolve() if path.is_symlink() else path
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk, where the system lets one open a folder."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path, *, timeout: float = 10.0) -> Iterator[None]:
    """Read and replace a file while no other process does: `flock` on `<path>.lock`, which a stock Hermes takes too.

    The lock file stays. Windows locks it in its own way; where a disk has no locks a marker file takes their place, and
    Python warns of it.
    """
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=timeout)
        with lock:
            yield
    except Timeout as error:
        raise HomeError(f"another process holds {path}", hint="Try again in a moment") from error
    except OSError as error:
        raise unwritable(path, error) from error
