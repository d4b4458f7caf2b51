"""The store's file: the driver's own connection is the transaction, and rows know their columns by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from hermes.sqlite.connection import connect_plainly
from hermes.sqlite.database import SqliteDatabase, accept
from hermes.sqlite.reading import ReadLane

Tx: TypeAlias = sqlite3.Connection
"""An open transaction. Functions that take one must have no effect outside it."""

LANES = (ReadLane(threads=4),)


class StoreDatabase(SqliteDatabase[Tx]):
    """An open file. When `write` returns, what was written is on the disk."""

    def __init__(self, path: Path, *, lock_timeout: float, inspect: Callable[[Tx], None] = accept) -> None:
        """Open a file or make it. `inspect` sees it before a byte is changed, and raises to refuse it."""
        super().__init__(
            path,
            partial(connect_plainly, path),
            lock_timeout=lock_timeout,
            lanes=LANES,
            pragmas=("temp_store = MEMORY",),
            inspect=inspect,
        )
