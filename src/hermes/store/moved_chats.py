"""Chats that a platform gave another id, such as a group that became a supergroup: the conversation stays the same."""

from __future__ import annotations

from hermes.db.engine import Tx

SCHEMA = """
CREATE TABLE hermes_moved_chats (
    platform TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    first_chat_id TEXT NOT NULL,
    moved_at REAL NOT NULL,
    PRIMARY KEY (platform, chat_id)
) WITHOUT ROWID
"""


def record_move(tx: Tx, platform: str, old: str, new: str, *, now: float) -> bool:
    """Remember that chat `old` is called `new` now; False when that is known, or makes no sense."""
    first = first_chat_id(tx, platform, old)
    if first == new:
        return False
    added = tx.execute(
        "INSERT INTO hermes_moved_chats VALUES (?, ?, ?, ?) ON CONFLICT (platform, chat_id) DO NOTHING",
        (platform, new, first, now),
    )
    return added.rowcount > 0


def first_chat_id(tx: Tx, platform: str, chat_id: str) -> str:
    """The id that a chat had first: its conversation is named by it for life."""
    row = tx.execute(
        "SELECT first_chat_id FROM hermes_moved_chats WHERE platform = ? AND chat_id = ?", (platform, chat_id)
    ).fetchone()
    return chat_id if row is None else str(row["first_chat_id"])
