"""A log file that many processes write at once: whole lines, and a rotation that loses none.

    line ── is our open file still the log? ── too large? rotate, under a lock ── append, in one write

No process waits for another: while one rotates, the others write to the file as it is.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from hermes.errors import HomeError
from hermes.files import locked

MAY_SHARE = os.name != "nt"
"""True if an append is atomic and an open file can be renamed. Otherwise each line is written under the lock."""
LOG_LOCK_TIMEOUT_SECONDS = 1.0
"""Maximum time that a line waits for the lock, where one is needed."""
NONBLOCK = getattr(os, "O_NONBLOCK", 0)
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NONBLOCK | getattr(os, "O_BINARY", 0)


class LogFile(logging.Handler):
    """Appends to `path`; at `largest` bytes it becomes `path.1`, and so on up to `kept`. Opening may raise OSError."""

    def __init__(self, path: Path, *, largest: int, kept: int) -> None:
        self._path = path
        self._largest = largest
        self._kept = kept
        self._descriptor: int | None = None
        self._failing = False
        self._told_of_rotation = False
        super().__init__()
        self._follow()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line. A failure is reported once on stderr, and so is its end."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            if MAY_SHARE:
                self._write(line, self._rotate)
            else:
                with locked(self._path, timeout=LOG_LOCK_TIMEOUT_SECONDS):
                    self._write(line, self._shift)
                    self._release()
        except (OSError, HomeError) as error:
            if not self._failing:
                self._failing = True
                _tell(f"cannot write the log {self._path}: {getattr(error, 'strerror', None) or error}")
            return
        if self._failing:
            self._failing = False
            _tell(f"the log {self._path} is written again")

    def close(self) -> None:
        """Close the file; a later line would open it again."""
        self._release()
        super().close()

    def _write(self, line: bytes, rotate: Callable[[int], None]) -> None:
        held, size = self._follow()
        if size and size + len(line) > self._largest:
            rotate(held)
            held, _ = self._follow()
        rest = b"\n" + line if self._failing else line  # what failed may have left half a line
        while rest:
            rest = rest[os.write(held, rest) :]

    def _follow(self) -> tuple[int, int]:
        """Return the open file that has the log's name now, and its size; 0 for anything but a regular file."""
        held = self._descriptor
        if held is None or not _is_open_at(self._path, held):
            self._release()
            self._descriptor = held = _open(self._path)
        found = os.fstat(held)
        return held, found.st_size if stat.S_ISREG(found.st_mode) else 0

    def _rotate(self, full: int) -> None:
        """Rotate, unless another process does so now or just did. If it is impossible, the file keeps growing."""
        try:
            with locked(self._path, timeout=0.0):
                self._shift(full)
        except HomeError as error:
            if not isinstance(error.__cause__, TimeoutError) and not self._told_of_rotation:
                self._told_of_rotation = True
                _tell(f"cannot rotate the log: {error.message}")

    def _shift(self, full: int) -> None:
        """Give every file the next number, up to the first free one; beyond the last number the oldest is deleted."""
        if not _is_open_at(self._path, full):
            return  # someone else has just done it
        self._release()
        names = [self._path]
        while names[-1].exists() and len(names) <= self._kept:
            names.append(self._path.with_name(f"{self._path.name}.{len(names)}"))
        for newer, older in reversed(list(pairwise(names))):
            newer.replace(older)

    def _release(self) -> None:
        held, self._descriptor = self._descriptor, None
        if held is not None:
            os.close(held)


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        opened = os.open(path, FLAGS, 0o600)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(error.errno, "it is a pipe that nobody reads", str(path)) from error
    if NONBLOCK:
        os.set_blocking(opened, True)
    return opened


def _is_open_at(path: Path, descriptor: int) -> bool:
    """Return True if the open file still has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _tell(text: str) -> None:
    """Write to stderr, since the log cannot take it."""
    sys.stderr.write(f"hermes: {text}\n")
