"""The log of a profile: `logs/agent.log`, one line per event, with the session in brackets.

The bracket of an operation is bound to it: it survives every await, task and thread that copies the context, and
nothing inside the operation can change it.

A log file that many processes write at once: whole lines, and a rotation that loses none.

    line ── is our open file still the log? ── too large? rotate, under a lock ── append, in one write

No process waits for another: while one rotates, the others write to the file as it is.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice, pairwise
from pathlib import Path

from msgspec import Struct

from hermes.errors import HomeError, UsageError
from hermes.files import check_file, locked, unwritable
from hermes.redaction import HIDDEN, hide_tokens

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


SESSION: ContextVar[str] = ContextVar("session", default="-")
"""The session that the running task works for."""

_OPERATION: ContextVar[str | None] = ContextVar("operation", default=None)

FORMAT = "%(asctime)s %(levelname)s [%(session)s] %(name)s: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"
LINE = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d) (WARNING|ERROR|CRITICAL) \[[^\]]*\] ([\w.]+): (.*)")
TAIL_BYTES = 256 * 1024
"""Number of bytes at the end of a log that are searched for warnings."""
MAX_LOG_BYTES = 5 * 1024 * 1024
MAX_OLD_LOG_FILES = 3


@contextmanager
def operation(session_id: str) -> Iterator[None]:
    """Give everything that is logged inside, here and in tasks started here, the bracket `[session_id]`.

    Raises UsageError inside an operation on another session: that would be work on the wrong conversation.
    """
    outer = _OPERATION.get()
    if outer not in (None, session_id):
        raise UsageError(f"an operation on session {outer} cannot work on session {session_id}")
    token = _OPERATION.set(session_id)
    try:
        yield
    finally:
        _OPERATION.reset(token)


def start_log(path: Path, *, level: str = "info", form: str = "text", secrets: Iterable[str] = ()) -> None:
    """Log to `path`, private to its owner; `secrets` never appear in it."""
    try:
        handler = LogFile(path, largest=MAX_LOG_BYTES, kept=MAX_OLD_LOG_FILES)
    except OSError as error:
        raise unwritable(f"the log {path}", error) from error
    handler.setFormatter(_JsonFormatter() if form == "json" else logging.Formatter(FORMAT, datefmt=TIME))
    handler.addFilter(_Bracket())
    handler.addFilter(_Redaction(secrets))
    logger = logging.getLogger("hermes")
    for old in logger.handlers:
        old.close()
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    # Otherwise asyncio's messages would go to standard error, over the person's screen.
    logging.getLogger("asyncio").handlers = [handler]


class LogWarning(Struct, frozen=True):
    """A warning or error in the log."""

    at: str
    level: str
    logger: str
    message: str


def read_warnings(path: Path, limit: int) -> list[LogWarning]:
    """Return the last warnings and errors of a log, newest first. Only the end of the file is read."""
    try:
        check_file(path)
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = (_read_warning(line) for line in reversed(lines))
    return list(islice((one for one in found if one is not None), limit))


def _read_warning(line: str) -> LogWarning | None:
    if not line.startswith("{"):
        match = LINE.fullmatch(line)
        return None if match is None else LogWarning(*match.groups())
    try:
        entry = json.loads(line)
        told = LogWarning(*(str(entry[name]) for name in ("time", "level", "logger", "message")))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return told if told.level in ("WARNING", "ERROR", "CRITICAL") else None


class _Bracket(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.session = _OPERATION.get() or SESSION.get()
        return True


class _Redaction(logging.Filter):
    """Removes known secrets, and text that looks like a key, from a line; a line stays one line."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = [secret for secret in secrets if len(secret) >= 4]

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._redact(record.getMessage()).replace("\n", "\\n")
        record.args = None
        if record.exc_info:
            record.exc_text = self._redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
        return True

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return hide_tokens(text)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
                "level": record.levelname,
                "session": getattr(record, "session", "-"),
                "logger": record.name,
                "message": record.getMessage(),
                **({"traceback": record.exc_text} if record.exc_text else {}),
            },
            ensure_ascii=False,
        )
