"""The write-ahead log, which keeps deleted text until it is overwritten."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from hermes.errors import StoreBusyError
from hermes.sqlite.faults import translated

LOG_TIMEOUT_SECONDS = 1.0
RETRY_PAUSE_SECONDS = 0.05
"""Maximum waiting time, and pause between two attempts: the log can be truncated only while nobody reads from it."""


def empty_log(path: Path) -> None:
    """Copy the log into its file and truncate it. Raises StoreBusyError if readers or writers never pause."""
    deadline = time.monotonic() + LOG_TIMEOUT_SECONDS
    with (
        translated(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0.0)) as connection,
    ):
        # The first copies without blocking writers, so that little is left for the second.
        while not (_checkpoint(connection, "PASSIVE") and _checkpoint(connection, "TRUNCATE")):
            if time.monotonic() >= deadline:
                raise StoreBusyError(f"the log of {path} is in use")
            time.sleep(RETRY_PAUSE_SECONDS)


def _checkpoint(connection: sqlite3.Connection, kind: str) -> bool:
    """Return True if nobody was in the way."""
    busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()
    return not busy
