"""Retractions: one row beside the log per command that retracted messages, so that a command repeated after a crash
retracts nothing twice. The messages themselves stay (`last_turns.py` marks them)."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

UNDONE_SCHEMA = (
    """
    CREATE TABLE hermes_undone (
        cause TEXT PRIMARY KEY,
        session_id TEXT NOT NULL,
        first_id INTEGER NOT NULL,
        upto_id INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX hermes_undone_by_session ON hermes_undone (session_id)",
)


class Undoing(Struct, frozen=True):
    """A retraction of messages `first_id` to `upto_id` by the command `cause`; `turns` is 0 if only the reply was
    retracted."""

    cause: str
    session_id: str
    first_id: int
    upto_id: int
    turns: int
    messages: int
    at: float


def record_undoing(tx: Tx, done: Undoing) -> None:
    values = [getattr(done, name) for name in Undoing.__struct_fields__]
    tx.execute("INSERT INTO hermes_undone VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def find_undoing(tx: Tx, cause: str) -> Undoing | None:
    """Return the retraction that a command made, or None."""
    row = tx.execute("SELECT * FROM hermes_undone WHERE cause = ?", (cause,)).fetchone()
    return None if row is None else Undoing(*(row[name] for name in Undoing.__struct_fields__))
