"""Reviews: how far the background review has read each session, and which sessions have unread messages.

A review that fails is tried again after waits that grow, behind those that never failed; after a few tries it is given
up until something new is said.
"""

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

TRIES = (
    "ALTER TABLE hermes_reviews_due ADD COLUMN tries INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE hermes_reviews_due ADD COLUMN not_before REAL NOT NULL DEFAULT 0",
)
"""How often a review has failed since one last succeeded, and when the next may begin."""

WAITS = (300.0, 1800.0, 7200.0, 43200.0)
"""Seconds from each failed try to the next; also after a review that was begun and cut off, which counts as no try."""
MOST_TRIES = len(WAITS) + 1
"""Tries after which a review is given up."""


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
    """Something was said that no review has read. It waits as long as it takes, also for another process; where reviews
    were given up, they are tried again."""
    tx.execute(
        "INSERT INTO hermes_reviews_due (session_id, since) VALUES (?, ?) ON CONFLICT (session_id) "
        "DO UPDATE SET tries = 0, not_before = 0 WHERE tries >= ?",
        (session_id, now, MOST_TRIES),
    )


def begin_try(tx: Tx, session_id: str, *, now: float) -> bool:
    """Whether a review may begin now. Until it has ended, also when it never does, none begins before a while."""
    row = tx.execute("SELECT tries, not_before FROM hermes_reviews_due WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return True
    tries = int(row["tries"])
    if tries >= MOST_TRIES or now < row["not_before"]:
        return False
    _wait(tx, session_id, now + WAITS[max(tries - 1, 0)])
    return True


def count_try(tx: Tx, session_id: str, *, now: float) -> int:
    """A review failed once more; how often by now."""
    counted = "UPDATE hermes_reviews_due SET tries = tries + 1 WHERE session_id = ? RETURNING tries"
    row = tx.execute(counted, (session_id,)).fetchone()
    if row is None:
        return 0
    tries = int(row["tries"])
    _wait(tx, session_id, now + WAITS[min(tries, len(WAITS)) - 1])
    return tries


def _wait(tx: Tx, session_id: str, until: float) -> None:
    tx.execute("UPDATE hermes_reviews_due SET not_before = ? WHERE session_id = ?", (until, session_id))


def forget_tries(tx: Tx, session_id: str) -> None:
    """A review came to its end: what is still unread may be read at once."""
    tx.execute("UPDATE hermes_reviews_due SET tries = 0, not_before = 0 WHERE session_id = ?", (session_id,))


def clear_due(tx: Tx, session_id: str) -> None:
    """All was read."""
    tx.execute("DELETE FROM hermes_reviews_due WHERE session_id = ?", (session_id,))


def due_sessions(tx: Tx, *, left_before: float, now: float, limit: int) -> list[str]:
    """Sessions whose review may begin, with something unread since before `left_before` or after one that did not come
    to its end: those that failed least, of these the oldest first."""
    rows = tx.execute(
        "SELECT session_id FROM hermes_reviews_due WHERE (since < :left OR not_before > 0) AND not_before <= :now "
        "AND tries < :most ORDER BY tries, since LIMIT :limit",
        {"left": left_before, "now": now, "most": MOST_TRIES, "limit": limit},
    )
    return [str(row["session_id"]) for row in rows]


def given_up(tx: Tx) -> int:
    """How many sessions no review reads any more until something new is said. The file may be of an older version."""
    if not tx.execute("SELECT 1 FROM pragma_table_info('hermes_reviews_due') WHERE name = 'tries'").fetchone():
        return 0
    row = tx.execute("SELECT count(*) FROM hermes_reviews_due WHERE tries >= ?", (MOST_TRIES,)).fetchone()
    return int(row[0])
