"""Reviews: how far the background review has read each session, and which sessions have unread messages.

A failed review is retried after growing delays, behind those that never failed. After a few attempts it is given up
until the session gets a new message.
"""

from __future__ import annotations

from hermes.db.engine import Tx

REVIEWS_SCHEMA = """
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

TRIES = (
    "ALTER TABLE hermes_reviews_due ADD COLUMN tries INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE hermes_reviews_due ADD COLUMN not_before REAL NOT NULL DEFAULT 0",
)
"""Failed attempts since the last success, and the earliest time of the next one."""

RETRY_DELAYS_SECONDS = (300.0, 1800.0, 7200.0, 43200.0)
"""Seconds from each failed attempt to the next. A review that was interrupted also waits, but counts as no attempt."""
MAX_ATTEMPTS = len(RETRY_DELAYS_SECONDS) + 1
"""Number of attempts after which a review is given up."""


def reviewed_upto(tx: Tx, session_id: str) -> int:
    """Return the id of the last reviewed message, or 0."""
    row = tx.execute("SELECT upto_message_id FROM hermes_reviews WHERE session_id = ?", (session_id,)).fetchone()
    return 0 if row is None else int(row[0])


def mark_reviewed(tx: Tx, session_id: str, upto_message_id: int) -> None:
    """Mark messages up to this one as reviewed; the mark never moves back."""
    tx.execute(
        "INSERT INTO hermes_reviews VALUES (?, ?) ON CONFLICT (session_id) "
        "DO UPDATE SET upto_message_id = max(upto_message_id, excluded.upto_message_id)",
        (session_id, upto_message_id),
    )


def mark_due(tx: Tx, session_id: str, *, now: float) -> None:
    """Queue a session for review because of new messages. The entry stays until some process has read them; a given-up
    review starts over."""
    tx.execute(
        "INSERT INTO hermes_reviews_due (session_id, since) VALUES (?, ?) ON CONFLICT (session_id) "
        "DO UPDATE SET tries = 0, not_before = 0 WHERE tries >= ?",
        (session_id, now, MAX_ATTEMPTS),
    )


def begin_try(tx: Tx, session_id: str, *, now: float) -> bool:
    """Return True if a review may begin now. If it never ends, the next one may begin after a delay."""
    row = tx.execute("SELECT tries, not_before FROM hermes_reviews_due WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return True
    tries = int(row["tries"])
    if tries >= MAX_ATTEMPTS or now < row["not_before"]:
        return False
    _wait(tx, session_id, now + RETRY_DELAYS_SECONDS[max(tries - 1, 0)])
    return True


def count_try(tx: Tx, session_id: str, *, now: float) -> int:
    """Count a failed review and return the number of failures."""
    counted = "UPDATE hermes_reviews_due SET tries = tries + 1 WHERE session_id = ? RETURNING tries"
    row = tx.execute(counted, (session_id,)).fetchone()
    if row is None:
        return 0
    tries = int(row["tries"])
    _wait(tx, session_id, now + RETRY_DELAYS_SECONDS[min(tries, len(RETRY_DELAYS_SECONDS)) - 1])
    return tries


def _wait(tx: Tx, session_id: str, until: float) -> None:
    tx.execute("UPDATE hermes_reviews_due SET not_before = ? WHERE session_id = ?", (until, session_id))


def forget_tries(tx: Tx, session_id: str) -> None:
    """Reset failures after a completed review: messages still unread may be reviewed at once."""
    tx.execute("UPDATE hermes_reviews_due SET tries = 0, not_before = 0 WHERE session_id = ?", (session_id,))


def clear_due(tx: Tx, session_id: str) -> None:
    """Remove a session from the queue; all of it was read."""
    tx.execute("DELETE FROM hermes_reviews_due WHERE session_id = ?", (session_id,))


def due_sessions(tx: Tx, *, left_before: float, now: float, limit: int) -> list[str]:
    """Return sessions to review now: queued before `left_before`, or failed or interrupted before. Those with the
    fewest failures come first, then the oldest."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_reviews_due WHERE (since < :left OR not_before > 0) AND not_before <= :now "
        "AND tries < :most ORDER BY tries, since LIMIT :limit",
        {"left": left_before, "now": now, "most": MAX_ATTEMPTS, "limit": limit},
    )
    return [str(row["session_id"]) for row in rows]


def given_up(tx: Tx) -> int:
    """Return the number of sessions whose review was given up. The file may be of an older version."""
    if not tx.execute("SELECT 1 FROM pragma_table_info('hermes_reviews_due') WHERE name = 'tries'").fetchone():
        return 0
    row = tx.execute("SELECT count(*) FROM hermes_reviews_due WHERE tries >= ?", (MAX_ATTEMPTS,)).fetchone()
    return int(row[0])
