"""Hidden messages: rows that stay in the file and are not shown, sent or searched. No message row is changed.

    hidden from everyone ── retracted by a person, or hidden by a repair ──> no view, list or search
    left out of memory   ── incognito, or forgotten later ──> no provider, review, title or search of an agent

`Incognito.remembered` is the one condition for all that memory reads: neither deleted, retracted nor left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.types import Message

MENDED_SCHEMA = """
CREATE TABLE hermes_mended (
    message_id INTEGER PRIMARY KEY,
    shown INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at REAL NOT NULL
)
"""

HIDDEN = "EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 0)"
"""SQL condition on `messages t`: rows hidden from everyone, by a repair or because a person retracted them."""

RESTORED = "EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 1)"
"""SQL condition on `messages t`: rows that a repair made live again."""

TAKEN_BACK = "taken back"
"""The reason of rows that a person retracted, and their mark where they are displayed nevertheless."""
UNDONE = (
    f"EXISTS (SELECT 1 FROM hermes_mended h WHERE h.message_id = t.id AND h.shown = 0 AND h.reason = '{TAKEN_BACK}')"
)
"""SQL condition on `messages t`: rows hidden because a person retracted them."""


def hide_rows(tx: Tx, message_ids: Iterable[int], reason: str, *, now: float) -> None:
    """Hide these messages from everyone; they stay in the file."""
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
LEFT_OUT = (
    "EXISTS (SELECT 1 FROM (SELECT i.upto_id FROM hermes_incognito i WHERE i.session_id = t.session_id "
    "AND i.after_id < t.id ORDER BY i.after_id DESC LIMIT 1) WHERE upto_id IS NULL OR t.id <= upto_id)"
)
"""SQL condition on `messages t`: rows left out of memory. Only the last range that begins before a message can cover
it, so one lookup suffices."""
LEFT_OUT_IDS = (
    "SELECT t.id FROM hermes_incognito i CROSS JOIN messages t "
    "WHERE t.session_id = i.session_id AND t.id > i.after_id AND (i.upto_id IS NULL OR t.id <= i.upto_id)"
)
"""Query for the ids of all messages that `LEFT_OUT` covers."""


class Incognito:
    """The messages of one store that memory may not have. Every method runs inside the caller's transaction."""

    def __init__(self, undone: str) -> None:
        """`undone` is the condition on `messages t` for retracted rows."""
        self._remembered = f"NOT {undone} AND NOT {LEFT_OUT}"

    def begin(self, tx: Tx, session_id: str) -> None:
        """Make a session incognito from the next message on."""
        if not self.is_on(tx, session_id):
            tx.execute(
                "INSERT OR REPLACE INTO hermes_incognito (session_id, after_id, upto_id) VALUES (?, ?, NULL)",
                (session_id, _last_id(tx)),
            )

    def end(self, tx: Tx, session_id: str) -> None:
        """End incognito mode, if it is on, after the last message so far."""
        tx.execute(
            "UPDATE hermes_incognito SET upto_id = ? WHERE session_id = ? AND upto_id IS NULL",
            (_last_id(tx), session_id),
        )

    def is_on(self, tx: Tx, session_id: str) -> bool:
        """Return True if the session is incognito now."""
        row = tx.execute("SELECT 1 FROM hermes_incognito WHERE session_id = ? AND upto_id IS NULL", (session_id,))
        return row.fetchone() is not None

    def leave_out(self, tx: Tx, session_id: str, message_id: int) -> None:
        """Keep one message out of memory from now on, even if memory already has it."""
        before = tx.execute(
            "SELECT after_id, upto_id FROM hermes_incognito WHERE session_id = ? AND after_id < ? "
            "ORDER BY after_id DESC LIMIT 1",
            (session_id, message_id),
        ).fetchone()
        if before is not None and (before["upto_id"] is None or before["upto_id"] >= message_id):
            return
        is_next = before is not None and before["upto_id"] == message_id - 1  # a range that ends here grows
        begins = before["after_id"] if is_next else message_id - 1
        tx.execute("INSERT OR REPLACE INTO hermes_incognito VALUES (?, ?, ?)", (session_id, begins, message_id))

    def ids(self, tx: Tx, session_id: str) -> frozenset[int]:
        """Return the messages of a session that were said incognito or forgotten."""
        rows = tx.execute(f"{LEFT_OUT_IDS} AND i.session_id = ?", (session_id,))
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
