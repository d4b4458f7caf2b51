"""Titles that sessions get by themselves: which still wait for one, and which are settled."""

from __future__ import annotations

from hermes.db.engine import Tx
from hermes.types import Session

SCHEMA = """
CREATE TABLE hermes_auto_titles (
    session_id TEXT PRIMARY KEY,
    is_due INTEGER NOT NULL,
    since REAL NOT NULL,
    tries INTEGER NOT NULL,
    made_upto INTEGER
) WITHOUT ROWID
"""
"""`made_upto` is the last message that a title was made of; NULL for one that a person chose."""


def is_title_due(tx: Tx, session_id: str) -> bool:
    row = tx.execute("SELECT is_due FROM hermes_auto_titles WHERE session_id = ?", (session_id,)).fetchone()
    return row is not None and bool(row["is_due"])


def mark_title_due(tx: Tx, session: Session, *, now: float) -> None:
    """A session without a title gets one as soon as some process has time for it. One that is settled stays so."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, ?, ?, 0, NULL) ON CONFLICT DO NOTHING",
        (session.id, session.title is None, now),
    )


def settle_title(tx: Tx, session_id: str, made_upto: int | None = None) -> None:
    """No title is to be made: one was made of the messages up to this one, or a person set one or took it away."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, 0, 0, 0, ?) "
        "ON CONFLICT (session_id) DO UPDATE SET is_due = 0, made_upto = excluded.made_upto",
        (session_id, made_upto),
    )


def unmake_title(tx: Tx, session_id: str, first_id: int, *, now: float) -> bool:
    """Messages from this one on were taken back. True when the title was made of some of them: a new one is due."""
    made = "session_id = ? AND is_due = 0 AND made_upto >= ?"
    return bool(
        tx.execute(
            f"UPDATE hermes_auto_titles SET is_due = 1, since = ?, tries = 0, made_upto = NULL WHERE {made}",
            (now, session_id, first_id),
        ).rowcount
    )


def count_title_try(tx: Tx, session_id: str) -> int:
    """Making a title failed once more; how often by now."""
    counted = "UPDATE hermes_auto_titles SET tries = tries + 1 WHERE session_id = ? RETURNING tries"
    row = tx.execute(counted, (session_id,)).fetchone()
    return 0 if row is None else int(row["tries"])


def untitled_sessions(tx: Tx, *, left_before: float, limit: int) -> list[str]:
    """Sessions that wait for a title since before then, or after a failure: fewest failures, then newest, first."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_auto_titles WHERE is_due AND (since < ? OR tries > 0) "
        "ORDER BY tries, since DESC LIMIT ?",
        (left_before, limit),
    )
    return [str(row["session_id"]) for row in rows]
