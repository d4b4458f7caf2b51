"""Whether rows that were read may have changed since.

Messages are appended and never changed; yet a session is deleted, a repair hides rows, another program compresses in
place or rewinds. Two numbers tell: SQLite's own count of what other connections committed, and our count of what the
writer's connection did to rows beside appending, which triggers of that connection keep.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes.db.engine import Tx

NOTE = "hermes_rewritten"
NEWEST = "(SELECT max(id) FROM main.messages)"

WATCHED = (
    ("BEFORE INSERT", "messages", "EXISTS (SELECT 1 FROM main.messages WHERE id = NEW.id)"),
    ("AFTER INSERT", "messages", f"NEW.id < {NEWEST}"),
    ("AFTER UPDATE", "messages", "1"),
    ("AFTER DELETE", "messages", "1"),
    (
        "BEFORE INSERT",
        "hermes_message_extra",
        "EXISTS (SELECT 1 FROM main.hermes_message_extra WHERE message_id = NEW.message_id)",
    ),
    ("AFTER INSERT", "hermes_message_extra", f"NEW.message_id < {NEWEST}"),
    ("AFTER UPDATE", "hermes_message_extra", "1"),
    ("AFTER DELETE", "hermes_message_extra", "1"),
    ("AFTER INSERT", "hermes_mended", "1"),
    ("AFTER UPDATE", "hermes_mended", "1"),
    ("AFTER DELETE", "hermes_mended", "1"),
    ("AFTER UPDATE", "hermes_compressions", "1"),
    ("AFTER DELETE", "hermes_compressions", "1"),
    ("AFTER DELETE", "sessions", "1"),
)
"""What may change a view that was read, beside new messages and a new compression, which are looked for. A row that
replaces another fires no trigger for the one that goes, so it is looked for before it comes."""


class Stamp(NamedTuple):
    """A moment of a file. The same stamp again means that nothing happened in between but what we appended."""

    others: int
    rewrites: int


class Rewrites:
    """Counts for the writer's connection of one store. It is used in that connection's thread alone."""

    def __init__(self, tx: Tx) -> None:
        """Watch the connection of `tx` from now on, which is to be the writer's."""
        self._tx = tx
        self._count = 0
        tx.create_function(NOTE, 0, self._note)
        for number, (event, table, condition) in enumerate(WATCHED):
            tx.execute(
                f"CREATE TEMP TRIGGER hermes_rewritten_{number} {event} ON main.{table} WHEN {condition} "
                f"BEGIN SELECT {NOTE}(); END"
            )

    def stamp(self, tx: Tx) -> Stamp:
        """This moment's stamp, in a transaction of the writer's connection."""
        assert tx is self._tx, "only the writer's connection can tell its own changes from those of others"
        return Stamp(tx.execute("PRAGMA data_version").fetchone()[0], self._count)

    def _note(self) -> None:
        """Also what is rolled back counts: a stamp that changed for nothing costs one reading."""
        self._count += 1
