"""Reviews: how far the background review has read each session, and which sessions have unread messages."""

from __future__ import annotations

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_reviews (
    session_id TEXT PRIMARY KEY,
    upto_message_id INTEGER NOT NULL
) WITHOUT ROWID
"""


DUE = """
CREATE TABLE hermes_reviews_due (
    session_id TEXT PRIMARY KEY,
    since REAL NOT NULL
) WITHOUT ROWID
"""


def reviewed_upto(tx: Tx, session_id: str) -> int:
    """The last message that was reviewed, or 0."""
    row = tx.execute("SELECT upto_message_id FROM hermes_reviews WHERE session_id = ?", (session_id,)).fetchone()
    return 0 if row is None else int(row[0])


def mark_reviewed(tx: Tx, session_id: str, upto_message_id: int) -> None:
    """Messages up to this one need no other review; the mark never moves back."""
    tx.execute(
        "INSERT INTO hermes_reviews VALUES (?, ?) ON CONFLICT (session_id) "
        "DO UPDATE SET upto_message_id = max(upto_message_id, excluded.upto_message_id)",
        (session_id, upto_message_id),
    )


def mark_due(tx: Tx, session_id: str, *, now: float) -> None:
    """Something was said that no review has read. It waits as long as it takes, also for another process."""
    tx.execute("INSERT INTO hermes_reviews_due VALUES (?, ?) ON CONFLICT DO NOTHING", (session_id, now))


def clear_due(tx: Tx, session_id: str) -> None:
    """All was read."""
    tx.execute("DELETE FROM hermes_reviews_due WHERE session_id = ?", (session_id,))


def due_sessions(tx: Tx, *, before: float, limit: int) -> list[str]:
    """Sessions with something unread since before then, the oldest first."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_reviews_due WHERE since < ? ORDER BY since LIMIT ?", (before, limit)
    )
    return [str(row["session_id"]) for row in rows]
