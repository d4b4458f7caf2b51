"""Mended rows: messages that a repair hides or shows again. The messages themselves are not touched."""

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
"""The condition on `messages t` for rows that a repair took out of every view."""

RESTORED = "EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 1)"
"""The condition on `messages t` for rows that a repair made live again."""

TAKEN_BACK = "taken back"
"""Why a message is hidden that a person took back, and how it is marked where it is shown all the same."""
UNDONE = (
    f"EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 0 AND h.reason = '{TAKEN_BACK}')"
)
"""The condition on `messages t` for rows that are hidden because a person took them back."""


def hide_rows(tx: Tx, message_ids: Iterable[int], reason: str, *, now: float) -> None:
    """From now on these messages are in no view, list or search; they stay in the file."""
    _mark(tx, message_ids, 0, reason, now)


def restore_rows(tx: Tx, message_ids: Iterable[int], reason: str, *, now: float) -> None:
    """From now on these messages are live again, whatever an older version marked them as."""
    _mark(tx, message_ids, 1, reason, now)


def restored_among(tx: Tx, message_ids: Iterable[int]) -> list[int]:
    """Those of these messages that a repair made live again."""
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
