"""Facts that people corrected or forgot by hand. They outlast the conversation, so that nobody notes the old fact
again.

A correction keeps the wrong and the right words. A forgotten fact keeps no words, only a hash of each, which tells
whether a text repeats the fact.

Retractions: one row beside the log per command that retracted messages, so that a command repeated after a crash
retracts nothing twice. The messages themselves stay (`last_turns.py` marks them).

Incognito: ranges of a session's messages that stay out of memory for good. The ranges of a session never overlap.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from operator import attrgetter

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.scope import Scope
from hermes.types import Message

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


UNDONE_SCHEMA = (
    """
    CREATE TABLE hermes_undone (
        cause TEXT PRIMARY KEY,
        session_id TEXT NOT NULL,
        first_id INTEGER NOT NULL,
        upto_id INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX hermes_undone_by_session ON hermes_undone (session_id)",
)


class Undoing(Struct, frozen=True):
    """A retraction of messages `first_id` to `upto_id` by the command `cause`; `turns` is 0 if only the reply was
    retracted."""

    cause: str
    session_id: str
    first_id: int
    upto_id: int
    turns: int
    messages: int
    at: float


def record_undoing(tx: Tx, done: Undoing) -> None:
    values = [getattr(done, name) for name in Undoing.__struct_fields__]
    tx.execute("INSERT INTO hermes_undone VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def find_undoing(tx: Tx, cause: str) -> Undoing | None:
    """Return the retraction that a command made, or None."""
    row = tx.execute("SELECT * FROM hermes_undone WHERE cause = ?", (cause,)).fetchone()
    return None if row is None else Undoing(*(row[name] for name in Undoing.__struct_fields__))


INCOGNITO_SCHEMA = """
CREATE TABLE hermes_incognito (
    session_id TEXT NOT NULL,
    after_id INTEGER NOT NULL,
    upto_id INTEGER,
    PRIMARY KEY (session_id, after_id)
) WITHOUT ROWID
"""


class Range(Struct, frozen=True):
    """Messages after `after_id` up to `upto_id`; None if the range is still open."""

    after_id: int
    upto_id: int | None

    def covers(self, message_id: int) -> bool:
        return message_id > self.after_id and (self.upto_id is None or message_id <= self.upto_id)


def is_hidden(ranges: Sequence[Range], message_id: int) -> bool:
    """Return True if one of a session's ranges, given in order, covers the message."""
    place = bisect_left(ranges, message_id, key=attrgetter("after_id"))
    return place > 0 and ranges[place - 1].covers(message_id)


class Incognito:
    """The incognito ranges of one store. Every method runs inside the caller's transaction."""

    def begin(self, tx: Tx, session_id: str) -> None:
        """Open a range at the next message, unless one is open."""
        if not self.is_on(tx, session_id):
            tx.execute(
                "INSERT OR REPLACE INTO hermes_incognito (session_id, after_id, upto_id) VALUES (?, ?, NULL)",
                (session_id, _last_id(tx)),
            )

    def end(self, tx: Tx, session_id: str) -> None:
        """Close the open range, if any, after the last message so far."""
        tx.execute(
            "UPDATE hermes_incognito SET upto_id = ? WHERE session_id = ? AND upto_id IS NULL",
            (_last_id(tx), session_id),
        )

    def leave_out(self, tx: Tx, session_id: str, message_id: int) -> None:
        """Keep one message out of memory from now on, even if memory already has it."""
        row = tx.execute(
            "SELECT after_id, upto_id FROM hermes_incognito WHERE session_id = ? AND after_id < ? "
            "ORDER BY after_id DESC LIMIT 1",
            (session_id, message_id),
        ).fetchone()
        before = Range(message_id - 1, message_id - 1) if row is None else Range(row["after_id"], row["upto_id"])
        if before.covers(message_id):
            return
        begins = before.after_id if before.upto_id == message_id - 1 else message_id - 1  # a range that ends here grows
        tx.execute("INSERT OR REPLACE INTO hermes_incognito VALUES (?, ?, ?)", (session_id, begins, message_id))

    def is_on(self, tx: Tx, session_id: str) -> bool:
        """Return True if the session is incognito now."""
        row = tx.execute("SELECT 1 FROM hermes_incognito WHERE session_id = ? AND upto_id IS NULL", (session_id,))
        return row.fetchone() is not None

    def ranges(self, tx: Tx, session_id: str) -> list[Range]:
        """Return every range of a session, oldest first."""
        rows = tx.execute("SELECT * FROM hermes_incognito WHERE session_id = ? ORDER BY after_id", (session_id,))
        return [Range(row["after_id"], row["upto_id"]) for row in rows]

    def remembered(self, tx: Tx, session_id: str, messages: Iterable[Message]) -> list[Message]:
        """Return the messages that memory may have."""
        ranges = self.ranges(tx, session_id)
        return [message for message in messages if not is_hidden(ranges, message.id)]


def _last_id(tx: Tx) -> int:
    """Return the newest message id of the whole store: ids grow over all sessions, and SQLite keeps the count after
    deletions.

    A file made by another program may not keep that count; then the newest remaining row decides.
    """
    row = tx.execute(
        "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0), "
        "coalesce((SELECT max(id) FROM messages), 0))"
    ).fetchone()
    return int(row[0])
