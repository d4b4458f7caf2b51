"""Failed compressions: how often in a row, and when to try again."""

from __future__ import annotations

from msgspec import Struct

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_compression_failures (
    session_id TEXT PRIMARY KEY,
    failures INTEGER NOT NULL,
    not_before REAL NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID
"""


class Failures(Struct, frozen=True):
    """How a session's compressions went lately."""

    count: int = 0
    not_before: float = 0.0
    reason: str = ""


def read_failures(tx: Tx, session_id: str) -> Failures:
    """The failures since the last success."""
    row = tx.execute("SELECT * FROM hermes_compression_failures WHERE session_id = ?", (session_id,)).fetchone()
    return Failures() if row is None else Failures(row["failures"], row["not_before"], row["reason"])


def record_failure(tx: Tx, session_id: str, failures: Failures) -> None:
    """Remember a failure, so that a restart does not forget to wait."""
    tx.execute(
        "INSERT OR REPLACE INTO hermes_compression_failures VALUES (?, ?, ?, ?)",
        (session_id, failures.count, failures.not_before, failures.reason),
    )


def clear_failures(tx: Tx, session_id: str) -> None:
    """It worked."""
    tx.execute("DELETE FROM hermes_compression_failures WHERE session_id = ?", (session_id,))
