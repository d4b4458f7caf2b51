"""Full-text search over everything that was said, in any script. What tools returned was not said.

The index is filled from the table, in order, up to a mark: rows that another program appended are found as well. It
keeps no copy of the text, so an entry can only be taken out with the words that went in. A fingerprint tells whether
these are still the same; when another program changed a row, the index is emptied and fills up again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.scope import DIRECT, Group, Guest, Owner, Scope
from hermes.store.copies import Copies
from hermes.store.messages import message_from_row
from hermes.store.schema import TableShape, as_text, kept_rows
from hermes.store.words import compile_query, compile_related, segment, snippet
from hermes.types import ECHO, Message

BATCH = 2000
SAID = f"m.role <> 'tool' AND coalesce(m.finish_reason, '') <> '{ECHO}'"
"""What a tool gave back and what a reply only quotes is not what someone said. An older index may hold it."""
INCOGNITO_ROWS = (
    "SELECT 1 FROM hermes_incognito i WHERE i.session_id = m.session_id AND m.id > i.after_id "
    "AND (i.upto_id IS NULL OR m.id <= i.upto_id)"
)


class Hit(Struct, frozen=True):
    """A message that was found, with the part of it that matched."""

    message: Message
    title: str | None
    source: str
    snippet: str


class Search:
    """The search index of one store. Every method runs inside the caller's transaction."""

    def __init__(self, message_shape: TableShape, session_shape: TableShape) -> None:
        self._message_shape = message_shape
        self._session_shape = session_shape
        self._copies = Copies(message_shape)

    def behind(self, tx: Tx) -> bool:
        """Whether there are messages that the index has not seen."""
        newest = tx.execute("SELECT max(id) FROM messages").fetchone()[0] or 0
        return bool(newest > _indexed_upto(tx))

    def catch_up(self, tx: Tx, limit: int = BATCH) -> int:
        """Index the next `limit` messages; returns how many there were. Call it until that is 0."""
        rows = tx.execute(
            "SELECT id, role, content FROM messages WHERE id > ? ORDER BY id LIMIT ?", (_indexed_upto(tx), limit)
        ).fetchall()
        if rows:
            said = [row for row in rows if row["role"] != "tool"]
            entries = [(row["id"], segment(text)) for row in said if (text := as_text(row["content"]))]
            tx.executemany("INSERT INTO hermes_search (rowid, text) VALUES (?, ?)", entries)
            tx.executemany(
                "INSERT INTO hermes_search_rows (message_id, fingerprint) VALUES (?, ?)",
                [(key, _fingerprint(text)) for key, text in entries],
            )
            tx.execute("UPDATE hermes_search_state SET indexed_upto = ?", (rows[-1]["id"],))
        return len(rows)

    def find(
        self, tx: Tx, text: str, scope: Scope, *, limit: int, session_id: str | None = None, source: str | None = None
    ) -> list[Hit]:
        """The best matches within `scope`, best first; none when `text` holds no word."""
        within, whose = _within(scope)
        wanted = (
            f"{within} AND (:session_id IS NULL OR m.session_id = :session_id) "
            "AND (:source IS NULL OR s.source = :source)"
        )
        values = {**whose, "session_id": session_id, "source": source}
        return self._match(tx, compile_query(text), text, wanted, limit, values)

    def related(self, tx: Tx, text: str, scope: Scope, *, limit: int, roles: Sequence[str]) -> list[Hit]:
        """What shares words with `text` within `scope`, best first, said by `roles`; what was said incognito is never
        among it."""
        within, whose = _within(scope)
        spoken = "SELECT value FROM json_each(:roles)"
        wanted = f"{within} AND m.role IN ({spoken}) AND NOT EXISTS ({INCOGNITO_ROWS})"
        values = {**whose, "roles": json.dumps(roles)}
        return self._match(tx, compile_related(text), text, wanted, limit, values)

    def _match(
        self, tx: Tx, query: str, text: str, wanted: str, limit: int, values: Mapping[str, str | None]
    ) -> list[Hit]:
        """The best matches. Copies of what was said once do not count, so it may take a longer list to fill a short."""
        length = limit
        while query:
            hits = self._list(tx, text, wanted, {**values, "query": query, "length": length})
            copies = {
                key for session in {hit.message.session_id for hit in hits} for key in self._copies.of(tx, session)
            }
            own = [hit for hit in hits if hit.message.id not in copies]
            if len(own) >= limit >= 0 or length < 0 or len(hits) < length:
                return own[:limit] if limit >= 0 else own
            length *= 2
        return []

    def _list(self, tx: Tx, text: str, wanted: str, values: Mapping[str, str | int | None]) -> list[Hit]:
        fields = ", ".join(f"m.{name}" for name in (*self._message_shape.required, *self._message_shape.optional))
        rows = tx.execute(
            f"""
            SELECT {fields}, s.title AS session_title, s.source AS session_source
            FROM hermes_search f
            JOIN ({self._message_shape.select} WHERE {kept_rows(self._message_shape)}) m ON m.id = f.rowid
            JOIN ({self._session_shape.select}) s ON s.id = m.session_id
            WHERE hermes_search MATCH :query AND {SAID} AND {wanted}
            ORDER BY bm25(hermes_search), m.id DESC LIMIT :length
            """,
            values,
        )
        return [
            Hit(message, row["session_title"], row["session_source"], snippet(message.content or "", text))
            for row, message in ((row, message_from_row(row)) for row in rows)
        ]

    def forget(self, tx: Tx, session_id: str) -> int:
        """Take a session's messages out of the index; they must still be in the table. Returns how many there were."""
        rows = tx.execute(
            "SELECT m.id, m.content, r.fingerprint FROM messages m JOIN hermes_search_rows r ON r.message_id = m.id "
            "WHERE m.session_id = ?",
            (session_id,),
        ).fetchall()
        entries = [(row["id"], segment(as_text(row["content"]) or "")) for row in rows]
        if all(row["fingerprint"] == _fingerprint(text) for row, (_, text) in zip(rows, entries, strict=True)):
            _take_out(tx, entries)
        else:
            _empty(tx)
        return len(entries)


def _within(scope: Scope) -> tuple[str, dict[str, str]]:
    """The condition on a session `s` that a scope reaches, with its values. A session that does not say whose it is
    belongs to the owner alone."""
    direct = ", ".join(f"'{kind}'" for kind in DIRECT)
    match scope:
        case Owner():
            return "1", {}
        case Guest(platform, user_id):
            own = "s.source = :platform AND s.user_id = :user_id"
            return f"({own} AND s.chat_type IN ({direct}))", {"platform": platform, "user_id": user_id}
        case Group(session_key):
            own = "s.session_key = :session_key"
            return f"({own} AND coalesce(s.chat_type, '') NOT IN ({direct}))", {"session_key": session_key}


def _take_out(tx: Tx, entries: Sequence[tuple[int, str]]) -> None:
    tx.executemany("INSERT INTO hermes_search (hermes_search, rowid, text) VALUES ('delete', ?, ?)", entries)
    tx.executemany("DELETE FROM hermes_search_rows WHERE message_id = ?", [(key,) for key, _ in entries])


def _empty(tx: Tx) -> None:
    tx.execute("INSERT INTO hermes_search (hermes_search) VALUES ('delete-all')")
    tx.execute("DELETE FROM hermes_search_rows")
    tx.execute("UPDATE hermes_search_state SET indexed_upto = 0")


def _fingerprint(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _indexed_upto(tx: Tx) -> int:
    return int(tx.execute("SELECT indexed_upto FROM hermes_search_state").fetchone()[0])
