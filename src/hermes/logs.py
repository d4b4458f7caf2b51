"""The log of a profile: `logs/agent.log`, one line per event, with the session in brackets."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path

from hermes.errors import HomeError

SESSION: ContextVar[str] = ContextVar("session", default="-")
"""The session that the running task works for."""

FORMAT = "%(asctime)s %(levelname)s [%(session)s] %(name)s: %(message)s"
LARGEST = 5 * 1024 * 1024
KEPT = 3


class _SessionFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.session = SESSION.get()
        return True


def start_log(path: Path) -> None:
    """Log what hermes does to `path`, for its owner alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8", delay=True)
        path.touch(mode=0o600)
    except OSError as error:
        raise HomeError(f"cannot write the log {path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter(FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
    handler.addFilter(_SessionFilter())
    logger = logging.getLogger("hermes")
    for old in logger.handlers:
        old.close()
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
