"""Connections to one file, and the wait for its locks."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from hermes.sqlite.faults import is_busy

UNREADABLE = "Could not decode to UTF-8"
"""How the message of Python's sqlite3 begins for text that is not UTF-8."""
LOCK_PAUSE = (0.001, 0.005)
"""Seconds between two tries for the write lock. SQLite's own pauses grow: whoever waits longest would come last."""


class Closable(Protocol):
    """Can be closed."""

    def close(self) -> None:
        """Give back what it holds."""


T = TypeVar("T")
Tx = TypeVar("Tx", bound=Closable)
"""What a function is given as its transaction."""


class Opened(Struct, Generic[Tx], frozen=True):
    """A connection: as the driver has it, and as functions see it. Closing `tx` closes both."""

    raw: sqlite3.Connection
    tx: Tx

    def run(self, run: Callable[[Tx], T], undo: Callable[[], object] = lambda: None) -> T:
        """What `run` returns. When it meets text that is no UTF-8, it is undone and runs again, and from then on such
        text is read with U+FFFD in place of what cannot be read. To be asked for every text would make fetching rows
        two thirds slower."""
        try:
            return run(self.tx)
        except sqlite3.OperationalError as error:
            if self.raw.text_factory is read_text or not str(error).startswith(UNREADABLE):
                raise
        undo()
        self.raw.text_factory = read_text
        return run(self.tx)

    def run_and_undo(self, run: Callable[[Tx], T]) -> T:
        """Run `run` in the transaction that was begun, then end it without a trace."""
        try:
            return self.run(run)
        finally:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for no lock, begins no transaction by itself and may go from thread to thread."""
    return sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)


def connect_plainly(path: Path) -> Opened[sqlite3.Connection]:
    """A connection that functions see as the driver has it; rows know their columns by name."""
    connection = connect(path)
    connection.row_factory = sqlite3.Row
    return Opened(connection, connection)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file stands under a name; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def read_text(raw: bytes) -> str:
    """A stored text, also where another program left what is no UTF-8: with U+FFFD in its place."""
    return raw.decode("utf-8", "replace")


def wait_for_lock(act: Callable[[], object], timeout: float) -> None:
    """Do what needs a lock, trying again for `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            act()
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(random.uniform(*LOCK_PAUSE))
