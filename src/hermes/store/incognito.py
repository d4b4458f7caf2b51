"""Incognito: ranges of a session's messages that stay out of memory for good. The ranges of a session never overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.types import Message

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
