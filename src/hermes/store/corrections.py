"""Facts that people corrected or forgot by hand. They outlast the conversation, so that nobody notes the old fact
again.

A correction keeps the wrong and the right words. A forgotten fact keeps no words, only a hash of each, which tells
whether a text repeats the fact.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection
from hashlib import sha256

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.scope import Scope

CORRECTIONS_SCHEMA = (
    """
    CREATE TABLE hermes_corrections (
        id INTEGER PRIMARY KEY,
        scope TEXT NOT NULL,
        at REAL NOT NULL,
        wrong TEXT NOT NULL,
        holds TEXT NOT NULL,
        salt TEXT NOT NULL,
        traces TEXT NOT NULL
    )
    """,
    "CREATE INDEX hermes_corrections_by_scope ON hermes_corrections (scope)",
)
MAX_CORRECTIONS = 200
"""Maximum number of corrections kept per person; older ones are dropped."""


class Correction(Struct, frozen=True):
    """A correction: `wrong` was replaced by `right`. Both are "" for a forgotten fact, which has `traces` of its
    words."""

    id: int
    at: float
    wrong: str
    right: str
    salt: str = ""
    traces: frozenset[str] = frozenset()

    def is_trace(self, word: str) -> bool:
        """Return True if a word occurred in the forgotten fact."""
        return _trace(self.salt, word) in self.traces


def corrections_of(tx: Tx, scope: Scope) -> list[Correction]:
    """Return the corrections and forgotten facts of a person or group, newest first."""
    found = tx.execute("SELECT * FROM hermes_corrections WHERE scope = ? ORDER BY id DESC", (scope.name,))
    return [
        Correction(row["id"], row["at"], row["wrong"], row["holds"], row["salt"], frozenset(json.loads(row["traces"])))
        for row in found
    ]


def keep_correction(tx: Tx, scope: Scope, wrong: str, right: str, *, now: float) -> None:
    """Store that `right` replaces `wrong`. Earlier corrections to `wrong` now lead to `right`."""
    tx.execute("UPDATE hermes_corrections SET holds = ? WHERE scope = ? AND holds = ?", (right, scope.name, wrong))
    tx.execute("DELETE FROM hermes_corrections WHERE scope = ? AND wrong IN (?, ?)", (scope.name, wrong, right))
    _insert(tx, scope, now, wrong, right)


def keep_forgotten(tx: Tx, scope: Scope, text: str, words_of: Callable[[str], Collection[str]], *, now: float) -> None:
    """Store that a person had `text` forgotten, with every correction that led to it. `words_of` returns a text's fact
    words."""
    gone = tx.execute(
        "DELETE FROM hermes_corrections WHERE scope = ? AND holds = ? RETURNING wrong", (scope.name, text)
    )
    for forgotten in {text, *(row["wrong"] for row in gone.fetchall())}:
        salt = secrets.token_hex(8)
        _insert(tx, scope, now, salt=salt, traces=sorted({_trace(salt, word) for word in words_of(forgotten)}))


def drop_correction(tx: Tx, correction: int) -> None:
    """Delete a correction that no longer holds."""
    tx.execute("DELETE FROM hermes_corrections WHERE id = ?", (correction,))


def drop_corrections(tx: Tx, is_to_go: Callable[[str], bool]) -> None:
    """Delete the corrections whose words are to be forgotten."""
    for row in tx.execute("SELECT id, wrong, holds FROM hermes_corrections").fetchall():
        if is_to_go(row["wrong"]) or is_to_go(row["holds"]):
            drop_correction(tx, row["id"])


def _insert(
    tx: Tx, scope: Scope, now: float, wrong: str = "", right: str = "", salt: str = "", traces: Collection[str] = ()
) -> None:
    tx.execute(
        "INSERT INTO hermes_corrections (scope, at, wrong, holds, salt, traces) VALUES (?, ?, ?, ?, ?, ?)",
        (scope.name, now, wrong, right, salt, json.dumps(list(traces))),
    )
    tx.execute(
        "DELETE FROM hermes_corrections WHERE scope = :scope AND id NOT IN "
        "(SELECT id FROM hermes_corrections WHERE scope = :scope ORDER BY id DESC LIMIT :kept)",
        {"scope": scope.name, "kept": MAX_CORRECTIONS},
    )


def _trace(salt: str, word: str) -> str:
    return sha256(f"{salt}:{word}".encode()).hexdigest()[:16]
