"""The log of a profile: `logs/agent.log`, one line per event, with the session in brackets.

The bracket of an operation is bound to it: it survives every await, task and thread that copies the context, and
nothing inside the operation can change it.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path

from msgspec import Struct

from hermes.errors import UsageError
from hermes.files import check_file, unwritable
from hermes.log_file import LogFile
from hermes.redaction import HIDDEN, hide_tokens

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
