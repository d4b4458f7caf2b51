"""Hidden messages: rows that stay in the file and are not shown, sent or searched. No message row is changed.

    everyone  ── retracted by a person, or hidden by a repair ──> no view, list or search
    memory    ── said incognito, or forgotten ──> no provider, review, title or search of an agent
    providers ── retracted, or a copy from a deleted session ──> no provider, even if the row is live again
    nobody    ── restored by a repair ──> live, however another version marked the row

`Incognito.remembered` is the one condition for all that memory reads: neither deleted, retracted nor left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.types import Message

HiddenFrom = Literal["everyone", "memory", "providers", "nobody"]
HIDDEN_SCHEMA = (
    """
    CREATE TABLE hermes_hidden (
        hidden_from TEXT NOT NULL,
        message_id INTEGER NOT NULL,
        why TEXT NOT NULL,
        at REAL,
        PRIMARY KEY (hidden_from, message_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE hermes_incognito_sessions (
        session_id TEXT PRIMARY KEY,
        after_id INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "INSERT INTO hermes_hidden SELECT iif(shown, 'nobody', 'everyone'), message_id, reason, at FROM hermes_mended",
    """
    INSERT INTO hermes_hidden SELECT DISTINCT 'memory', t.id, 'incognito or forgotten', NULL
    FROM hermes_incognito i CROSS JOIN messages t
    WHERE t.session_id = i.session_id AND t.id > i.after_id AND t.id <= i.upto_id
    """,
    """
    INSERT INTO hermes_incognito_sessions
    SELECT session_id, min(after_id) FROM hermes_incognito WHERE upto_id IS NULL GROUP BY session_id
    """,
    "INSERT INTO hermes_hidden SELECT 'providers', message_id, 'retracted or copied', NULL FROM hermes_memory_told "
    "WHERE provider = ''",
    "DELETE FROM hermes_memory_told WHERE provider = ''",
    # A process of the version before that still runs must fail, not hide something where nobody looks any more.
    "DROP TABLE hermes_mended",
    "DROP TABLE hermes_incognito",
)
"""Migration of earlier files, which had a table for each kind of mark. `at` is NULL if they did not keep the time."""
MENDED_SCHEMA = """
CREATE TABLE hermes_mended (
    message_id INTEGER PRIMARY KEY,
    shown INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL
)
"""
"""Table of earlier files."""
INCOGNITO_SCHEMA = """
CREATE TABLE hermes_incognito (
    session_id TEXT NOT NULL,
    after_id INTEGER NOT NULL,
    upto_id INTEGER,
    PRIMARY KEY (session_id, after_id)
) WITHOUT ROWID
"""
"""Table of earlier files, with ranges of messages; the last one of a session may be open."""
TAKEN_BACK, FORGOTTEN, INCOGNITO, COPIED = "taken back", "forgotten", "incognito", "copied from a deleted session"
"""Reasons. The first is also the mark of retracted rows where they are displayed nevertheless."""


def _marked(hidden_from: HiddenFrom) -> str:
    return f"SELECT 1 FROM hermes_hidden h WHERE h.hidden_from = '{hidden_from}' AND h.message_id = t.id"


HIDDEN = f"EXISTS ({_marked('everyone')})"
"""SQL condition on `messages t`: rows hidden from everyone."""
RESTORED = f"EXISTS ({_marked('nobody')})"
"""SQL condition on `messages t`: rows that a repair made live again."""
UNDONE = f"EXISTS ({_marked('everyone')} AND h.why = '{TAKEN_BACK}')"
"""SQL condition on `messages t`: rows hidden because a person retracted them."""
WITHHELD = f"EXISTS ({_marked('providers')})"
"""SQL condition on `messages t`: rows that no provider receives."""
LEFT_OUT = (
    f"(EXISTS ({_marked('memory')}) OR EXISTS (SELECT 1 FROM hermes_incognito_sessions i "
    "WHERE i.session_id = t.session_id AND i.after_id < t.id))"
)
"""SQL condition on `messages t`: rows left out of memory."""
LEFT_OUT_IDS = (
    "SELECT message_id AS id FROM hermes_hidden WHERE hidden_from = 'memory' UNION SELECT t.id "
    "FROM hermes_incognito_sessions i CROSS JOIN messages t WHERE t.session_id = i.session_id AND t.id > i.after_id"
)
"""Query for the ids of all messages that `LEFT_OUT` covers."""
MENDED = "hidden_from IN ('everyone', 'nobody')"
MENDED_IDS = f"SELECT message_id FROM hermes_hidden WHERE {MENDED}"
"""Query for the ids of messages that are hidden from everyone, or restored."""


def hide_rows(
    tx: Tx, message_ids: Iterable[int], why: str, *, now: float | None, hidden_from: HiddenFrom = "everyone"
) -> None:
    """Hide these messages, even if memory already has them; they stay in the file. `now` may be unknown."""
    ids = list(message_ids)
    if hidden_from in ("everyone", "nobody"):  # one rules out the other
        tx.executemany(f"DELETE FROM hermes_hidden WHERE {MENDED} AND message_id = ?", [(key,) for key in ids])
    rows = [(hidden_from, key, why, now) for key in ids]
    tx.executemany("INSERT OR REPLACE INTO hermes_hidden VALUES (?, ?, ?, ?)", rows)


def restore_rows(tx: Tx, message_ids: Iterable[int], why: str, *, now: float) -> None:
    """Make these messages live again, however an older version marked them."""
    hide_rows(tx, message_ids, why, now=now, hidden_from="nobody")


def restored_among(tx: Tx, message_ids: Iterable[int]) -> list[int]:
    """Return those of these messages that a repair made live again."""
    rows = tx.execute(
        "SELECT message_id FROM hermes_hidden WHERE hidden_from = 'nobody' "
        "AND message_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(message_ids)),),
    )
    return [int(row["message_id"]) for row in rows]


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


class Incognito:
    """The messages of one store that memory may not have. Every method runs inside the caller's transaction."""

    def __init__(self, undone: str) -> None:
        """`undone` is the condition on `messages t` for retracted rows."""
        self._remembered = f"NOT {undone} AND NOT {LEFT_OUT}"

    def begin(self, tx: Tx, session_id: str) -> None:
        """Make a session incognito from the next message on."""
        tx.execute("INSERT OR IGNORE INTO hermes_incognito_sessions VALUES (?, ?)", (session_id, _last_id(tx)))

    def end(self, tx: Tx, session_id: str) -> None:
        """End incognito mode, if it is on, after the last message so far."""
        # While it is on, the open end also covers what another program writes; from now on each message has its mark.
        tx.execute(
            "INSERT OR IGNORE INTO hermes_hidden SELECT 'memory', t.id, ?, t.timestamp "
            "FROM hermes_incognito_sessions i CROSS JOIN messages t "
            "WHERE i.session_id = ? AND t.session_id = i.session_id AND t.id > i.after_id",
            (INCOGNITO, session_id),
        )
        tx.execute("DELETE FROM hermes_incognito_sessions WHERE session_id = ?", (session_id,))

    def is_on(self, tx: Tx, session_id: str) -> bool:
        """Return True if the session is incognito now."""
        row = tx.execute("SELECT 1 FROM hermes_incognito_sessions WHERE session_id = ?", (session_id,))
        return row.fetchone() is not None

    def ids(self, tx: Tx, session_id: str, first: int = 0) -> frozenset[int]:
        """Return the messages of a session, from `first` on, that were said incognito or forgotten."""
        rows = tx.execute(
            f"SELECT t.id FROM messages t WHERE t.session_id = ? AND t.id >= ? AND {LEFT_OUT}", (session_id, first)
        )
        return frozenset(row["id"] for row in rows)

    def remembered(self, tx: Tx, messages: Iterable[Message]) -> list[Message]:
        """Return the messages that memory may have: neither deleted, retracted, incognito nor forgotten."""
        given = list(messages)
        known = self.known_among(tx, [message.id for message in given])
        return [message for message in given if message.id in known]

    def known_among(self, tx: Tx, message_ids: Sequence[int]) -> frozenset[int]:
        """Return those of these messages that memory may have."""
        rows = tx.execute(
            f"SELECT t.id FROM messages t WHERE t.id IN (SELECT value FROM json_each(?)) AND {self._remembered}",
            (json.dumps(message_ids),),
        )
        return frozenset(row["id"] for row in rows)


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
