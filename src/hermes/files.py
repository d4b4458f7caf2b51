"""Files of the home: read only if they are regular files, replaced atomically, private to their owner."""

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

NOT_UTF8 = "it is not UTF-8 text"
FILE_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
T = TypeVar("T")
MAX_EDIT_ATTEMPTS = 50
"""Maximum number of attempts to change a file that another program keeps changing."""
MAX_FILE_BYTES = 64 * 1024 * 1024
ROOM_BYTES = 256 * 1024
"""Size of the test file that checks for free space."""
NO_FILE = "it is {}, not a file"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
FREE_SPACE = "Free some space and try again; what was saved before is untouched"


def check_file(path: Path) -> None:
    """Raise OSError at once unless `path` is a regular file: reading a pipe or a device may never end."""
    if (kind := stat.S_IFMT(path.stat().st_mode)) != stat.S_IFREG:
        raise OSError(errno.EINVAL, NO_FILE.format(FILE_KINDS.get(kind, "something else")), str(path))


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file. Raises OSError at once for anything but a regular file, or for more than
    `max_bytes`."""
    check_file(path)
    if (size := path.stat().st_size) > max_bytes:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {max_bytes:,} are read", str(path))
    return path.read_bytes()


def unwritable(path: Path | str, error: OSError | RuntimeError) -> HomeError:
    """Return the error for a file that could not be written, with the reason and what to do."""
    hint = FREE_SPACE if isinstance(error, OSError) and error.errno in NO_ROOM else None
    return HomeError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}", hint=hint)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, readable only by its owner; create its folder if needed."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    with replacing(path) as file:
        file.write(text)


def edit_file(path: Path, read: Callable[[], T], edit: Callable[[T], str]) -> bool:
    """Replace the content that `read` returns by the result of `edit`, while no other process does the same.

    Another program may not use our lock. Its changes before our last check, right before the replacement, are never
    overwritten. Returns False if the file keeps changing.
    """
    with locked(path):
        return edit_locked_file(path, read, edit)


def edit_locked_file(path: Path, read: Callable[[], T], edit: Callable[[T], str]) -> bool:
    """Edit a file as `edit_file` does, while the caller holds the lock."""
    return any(_edit_once(path, read, edit) for _ in range(MAX_EDIT_ATTEMPTS))


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
    """The file changed, so it is not replaced."""


@contextmanager
def replacing(path: Path, holds: Callable[[], bool] = lambda: True) -> Iterator[TextIO]:
    """Write a file that replaces `path` atomically at the end of the block. The old file stays if the block fails, or
    if `holds`, called right before the replacement, returns False.

    A link stays a link: its target is replaced. A target that is no regular file (a pipe) is written directly.
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
    """Write a new file, private to its owner. An incomplete one is deleted."""
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
    """Raise OSError unless a test file can be written in `folder`. It is deleted again."""
    with room_held(folder):
        pass


@contextmanager
def room_held(folder: Path) -> Iterator[Callable[[], None]]:
    """Reserve space on the disk of `folder` for a later write, and yield a function that releases it. Raises OSError
    if nothing can be written. No file is left."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())
        yield file.close


def _follow(path: Path) -> Path:
    """Return the target of a link, which need not exist. Links in a cycle have no target: Python 3.13 returns one of
    them, earlier versions raise RuntimeError."""
    target = path.resolve() if path.is_symlink() else path
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name is on disk, on systems that can open folders."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path, *, timeout: float = 10.0) -> Iterator[None]:
    """Hold a lock for reading and replacing a file: `flock` on `<path>.lock`, which a stock Hermes takes too.

    The lock file stays. Windows uses its own locks. On a disk without locks a marker file replaces them, and Python
    issues a warning.
    """
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path.with_name(f"{path.name}.lock"), timeout=timeout)
        with lock:
            yield
    except Timeout as error:
        raise HomeError(f"another process has locked {path}", hint="Try again in a moment") from error
    except OSError as error:
        raise unwritable(path, error) from error
