"""Mended rows: messages that are hidden or shown again. The message rows themselves are not changed."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_mended (
    message_id INTEGER PRIMARY KEY,
    shown INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL
)
"""

HIDDEN = "EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 0)"
"""SQL condition on `messages t`: rows hidden from every view, by a repair or because a person retracted them."""

RESTORED = "EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 1)"
"""SQL condition on `messages t`: rows that a repair made live again."""

TAKEN_BACK = "taken back"
"""The reason of rows that a person retracted, and their mark where they are displayed nevertheless."""
UNDONE = (
    f"EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 0 AND h.reason = '{TAKEN_BACK}')"
)
"""SQL condition on `messages t`: rows hidden because a person retracted them."""


def hide_rows(tx: Tx, message_ids: Iterable[int], reason: str, *, now: float) -> None:
    """Hide these messages from every view, list and search; they stay in the file."""
    _mark(tx, message_ids, 0, reason, now)


def restore_rows(tx: Tx, message_ids: Iterable[int], reason: str, *, now: float) -> None:
    """Make these messages live again, however an older version marked them."""
    _mark(tx, message_ids, 1, reason, now)


def restored_among(tx: Tx, message_ids: Iterable[int]) -> list[int]:
    """Return those of these messages that a repair made live again."""
    rows = tx.execute(
        "SELECT message_id FROM hermes_mended WHERE shown = 1 AND message_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(message_ids)),),
    )
    return [int(row["message_id"]) for row in rows]


def _mark(tx: Tx, message_ids: Iterable[int], shown: int, reason: str, now: float) -> None:
    tx.executemany(
        "INSERT OR REPLACE INTO hermes_mended (message_id, shown, reason, at) VALUES (?, ?, ?, ?)",
        [(key, shown, reason, now) for key in message_ids],
    )
