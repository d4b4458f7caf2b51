"""Notes that a review has added and that nobody was told of yet: kept until the person's next turn, told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hermes.db.engine import Tx
from hermes.events import MemoryUpdated
from hermes.scope import API, Group, Guest, Scope

SCHEMA = (
    "CREATE TABLE hermes_note_remarks (id INTEGER PRIMARY KEY, scope TEXT NOT NULL, remark TEXT NOT NULL)",
    "CREATE INDEX hermes_note_remarks_by_scope ON hermes_note_remarks (scope)",
)
KEPT = 5
"""Remarks that wait for one person; older ones are dropped."""


def keep_remarks(tx: Tx, scope: Scope, changes: Iterable[MemoryUpdated]) -> None:
    """Keep what changed for the person whose notes they are. A group, and a guest over the API, are told nothing."""
    if isinstance(scope, Group) or (isinstance(scope, Guest) and scope.platform == API):
        return
    rows = [(scope.name, msgspec.json.encode(change).decode()) for change in changes]
    tx.executemany("INSERT INTO hermes_note_remarks (scope, remark) VALUES (?, ?)", rows)
    tx.execute(
        "DELETE FROM hermes_note_remarks WHERE scope = :scope AND id NOT IN "
        "(SELECT id FROM hermes_note_remarks WHERE scope = :scope ORDER BY id DESC LIMIT :kept)",
        {"scope": scope.name, "kept": KEPT},
    )


def has_remarks(tx: Tx, scope: Scope) -> bool:
    """Whether anything waits to be told. Nothing is written."""
    found = tx.execute("SELECT 1 FROM hermes_note_remarks WHERE scope = ? LIMIT 1", (scope.name,)).fetchone()
    return found is not None


def take_remarks(tx: Tx, scope: Scope) -> list[MemoryUpdated]:
    """What waits to be told, the oldest first. Whoever takes it tells it: nobody else gets it any more."""
    taken = tx.execute("DELETE FROM hermes_note_remarks WHERE scope = ? RETURNING id, remark", (scope.name,)).fetchall()
    return [msgspec.json.decode(row["remark"], type=MemoryUpdated) for row in sorted(taken, key=lambda row: row["id"])]


def drop_remarks(tx: Tx, is_to_go: Callable[[str], bool], scope: Scope | None = None) -> None:
    """Delete those whose note is to be forgotten, of everyone or of one scope."""
    for row in tx.execute("SELECT id, scope, remark FROM hermes_note_remarks").fetchall():
        if scope is not None and row["scope"] != scope.name:
            continue
        if is_to_go(msgspec.json.decode(row["remark"], type=MemoryUpdated).text):
            tx.execute("DELETE FROM hermes_note_remarks WHERE id = ?", (row["id"],))
