"""Titles that a session gets by itself: which sessions still wait for one, and which got one that nobody chose."""

from __future__ import annotations

from hermes.db.engine import Tx
from hermes.types import Session

SCHEMA = """
CREATE TABLE hermes_auto_titles (
    session_id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    since REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID
"""
DUE, MADE, CHOSEN = "due", "made", "chosen"
"""A title is to be made; one was made; a person has chosen one, or to have none."""


def title_state(tx: Tx, session_id: str) -> str | None:
    """How it is with a session's title; None when nobody has thought of one yet."""
    row = tx.execute("SELECT state FROM hermes_auto_titles WHERE session_id = ?", (session_id,)).fetchone()
    return None if row is None else str(row["state"])


def mark_title_due(tx: Tx, session: Session, *, now: float) -> None:
    """A session without a title shall get one, as soon as somebody has time for it, also in another process."""
    state = DUE if session.title is None else CHOSEN
    tx.execute("INSERT INTO hermes_auto_titles VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING", (session.id, state, now))


def settle_title(tx: Tx, session_id: str, state: str) -> None:
    """No title is to be made any more: one was made, or a person has chosen."""
    tx.execute(
        "INSERT INTO hermes_auto_titles VALUES (?, ?, 0, 0) "
        "ON CONFLICT (session_id) DO UPDATE SET state = excluded.state",
        (session_id, state),
    )


def count_title_try(tx: Tx, session_id: str) -> int:
    """Making a title failed once more; how often by now."""
    tx.execute("UPDATE hermes_auto_titles SET tries = tries + 1 WHERE session_id = ?", (session_id,))
    row = tx.execute("SELECT tries FROM hermes_auto_titles WHERE session_id = ?", (session_id,)).fetchone()
    return 0 if row is None else int(row["tries"])


def sessions_without_title(tx: Tx, *, before: float, limit: int) -> list[str]:
    """Sessions that have waited for a title since before then, the newest first."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_auto_titles WHERE state = ? AND since < ? ORDER BY since DESC LIMIT ?",
        (DUE, before, limit),
    )
    return [str(row["session_id"]) for row in rows]


def chosen_title(tx: Tx, session: Session) -> str | None:
    """The title that a person has chosen; None for one that was made. Memory goes by this one alone."""
    return None if title_state(tx, session.id) == MADE else session.title
