"""The write-ahead log, which keeps what was written before until something else is written in its place."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from hermes.errors import StoreBusyError
from hermes.sqlite.faults import translated

PATIENCE = 1.0
PAUSE = 0.05
"""Seconds to go on trying, and between two tries: the log can be cut only while nobody reads out of it."""


def empty_log(path: Path) -> None:
    """Bring the log into its file and cut it to nothing. StoreBusyError when there was no moment for that."""
    deadline = time.monotonic() + PATIENCE
    with (
        translated(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0.0)) as connection,
    ):
        # The first copies without keeping writers waiting, so that little is left for the second.
        while not (_checkpoint(connection, "PASSIVE") and _checkpoint(connection, "TRUNCATE")):
            if time.monotonic() >= deadline:
                raise StoreBusyError(f"the log of {path} is in use")
            time.sleep(PAUSE)


def _checkpoint(connection: sqlite3.Connection, kind: str) -> bool:
    """Whether nobody was in the way."""
    busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({kind})").fetchone()
    return not busy
