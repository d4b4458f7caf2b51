"""Measures the cost of a log line against the handler of the standard library."""

from __future__ import annotations

import logging
import tempfile
from logging.handlers import RotatingFileHandler
from pathlib import Path

from bench.table import Row, report, summarise, time_calls
from hermes.log_file import LogFile

LOG_LINE_COUNT = 2_000
MAX_FILE_BYTES = 10**9


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = _measure("RotatingFileHandler", RotatingFileHandler(Path(folder) / "theirs", maxBytes=MAX_FILE_BYTES))
        ours = _measure("our log file", LogFile(Path(folder) / "ours", largest=MAX_FILE_BYTES, kept=3), theirs)
    report("Log: one line", [theirs, ours])


def _measure(name: str, handler: logging.Handler, base: Row | None = None) -> Row:
    log = logging.Logger("bench")
    log.addHandler(handler)
    taken = time_calls(
        lambda: log.warning("a line of the usual length, number %d, with some words in it", 7), LOG_LINE_COUNT
    )
    handler.close()
    return summarise(name, taken, base)
