"""Reviews: how far the background review has read each session."""

from __future__ import annotations

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_reviews (
    session_id TEXT PRIMARY KEY,
    upto_message_id INTEGER NOT NULL
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
