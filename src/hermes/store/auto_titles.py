"""Automatic titles: which sessions still need a title, and which are settled."""

from __future__ import annotations

from hermes.db.engine import Tx
from hermes.types import Session

AUTO_TITLES_SCHEMA = """
CREATE TABLE hermes_auto_titles (
    session_id TEXT PRIMARY KEY,
    is_due INTEGER NOT NULL,
    since REAL NOT NULL,
    tries INTEGER NOT NULL,
    made_upto INTEGER
) WITHOUT ROWID
"""
"""`made_upto` is the last message that the title summarizes; NULL if a person set the title."""


def is_title_due(tx: Tx, session_id: str) -> bool:
    row = tx.execute("SELECT is_due FROM hermes_auto_titles WHERE session_id = ?", (session_id,)).fetchone()
    return row is not None and bool(row["is_due"])


def mark_title_due(tx: Tx, session: Session, *, now: float) -> None:
    """Queue a session for a title. Sessions that have a title are settled at once; settled sessions stay settled."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, ?, ?, 0, NULL) ON CONFLICT DO NOTHING",
        (session.id, session.title is None, now),
    )


def settle_title(tx: Tx, session_id: str, made_upto: int | None = None) -> None:
    """Mark a session as settled: its title was made from messages up to `made_upto`, or a person set or removed it."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, 0, 0, 0, ?) "
        "ON CONFLICT (session_id) DO UPDATE SET is_due = 0, made_upto = excluded.made_upto",
        (session_id, made_upto),
    )


def unmake_title(tx: Tx, session_id: str, first_id: int, *, now: float) -> bool:
    """Return True, and queue a new title, if the title was made from messages since `first_id`, which were
    retracted."""
    made = "session_id = ? AND is_due = 0 AND made_upto >= ?"
    return bool(
        tx.execute(
            f"UPDATE hermes_auto_titles SET is_due = 1, since = ?, tries = 0, made_upto = NULL WHERE {made}",
            (now, session_id, first_id),
        ).rowcount
    )


def count_title_try(tx: Tx, session_id: str) -> int:
    """Count a failed attempt to make a title and return the number of failed attempts."""
    counted = "UPDATE hermes_auto_titles SET tries = tries + 1 WHERE session_id = ? RETURNING tries"
    row = tx.execute(counted, (session_id,)).fetchone()
    return 0 if row is None else int(row["tries"])


def untitled_sessions(tx: Tx, *, left_before: float, limit: int) -> list[str]:
    """Return sessions that need a title: idle since before `left_before` or failed before. Those with the fewest
    failures come first, then the newest."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_auto_titles WHERE is_due AND (since < ? OR tries > 0) "
        "ORDER BY tries, since DESC LIMIT ?",
        (left_before, limit),
    )
    return [str(row["session_id"]) for row in rows]
