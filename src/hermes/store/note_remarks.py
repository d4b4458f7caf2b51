"""Pending notices about notes that a review added, shown once at the person's next turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hermes.db.engine import Tx
from hermes.events import MemoryUpdated
from hermes.scope import API, Group, Guest, Scope

NOTE_REMARKS_SCHEMA = (
    "CREATE TABLE hermes_note_remarks (id INTEGER PRIMARY KEY, scope TEXT NOT NULL, remark TEXT NOT NULL)",
    "CREATE INDEX hermes_note_remarks_by_scope ON hermes_note_remarks (scope)",
)
MAX_PENDING_NOTICES = 5
"""Maximum number of pending notices per person; older ones are dropped."""


def keep_remarks(tx: Tx, scope: Scope, changes: Iterable[MemoryUpdated]) -> None:
    """Store a notice per change, for the person who owns the notes. Groups and API guests get none."""
    if isinstance(scope, Group) or (isinstance(scope, Guest) and scope.platform == API):
        return
    rows = [(scope.name, msgspec.json.encode(change).decode()) for change in changes]
    tx.executemany("INSERT INTO hermes_note_remarks (scope, remark) VALUES (?, ?)", rows)
    tx.execute(
        "DELETE FROM hermes_note_remarks WHERE scope = :scope AND id NOT IN "
        "(SELECT id FROM hermes_note_remarks WHERE scope = :scope ORDER BY id DESC LIMIT :kept)",
        {"scope": scope.name, "kept": MAX_PENDING_NOTICES},
    )


def has_remarks(tx: Tx, scope: Scope) -> bool:
    """Return True if unsent notices exist. Read-only."""
    found = tx.execute("SELECT 1 FROM hermes_note_remarks WHERE scope = ? LIMIT 1", (scope.name,)).fetchone()
    return found is not None


def take_remarks(tx: Tx, scope: Scope) -> list[MemoryUpdated]:
    """Delete and return the pending notices, oldest first. The caller must show them."""
    taken = tx.execute("DELETE FROM hermes_note_remarks WHERE scope = ? RETURNING id, remark", (scope.name,)).fetchall()
    return [msgspec.json.decode(row["remark"], type=MemoryUpdated) for row in sorted(taken, key=lambda row: row["id"])]


def drop_remarks(tx: Tx, is_to_go: Callable[[str], bool], scope: Scope | None = None) -> None:
    """Delete the notices whose note is to be forgotten, in all scopes or in one."""
    for row in tx.execute("SELECT id, scope, remark FROM hermes_note_remarks").fetchall():
        if scope is not None and row["scope"] != scope.name:
            continue
        if is_to_go(msgspec.json.decode(row["remark"], type=MemoryUpdated).text):
            tx.execute("DELETE FROM hermes_note_remarks WHERE id = ?", (row["id"],))
