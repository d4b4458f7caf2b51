"""Full-text search over all messages of people and the agent, in any script. Tool results are not indexed.

The index is filled from the table, in order, up to a mark, so it also covers rows that another program appended. It
keeps no copy of the text: removing an entry needs the words that were indexed. A fingerprint tells whether these are
unchanged; if another program changed a row, the index is emptied and filled again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from importlib import import_module

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.scope import Scope
from hermes.store.copies import Copies
from hermes.store.messages import message_from_row
from hermes.store.reach import EVERYWHERE, Narrowed, Reaches, SearchReach
from hermes.store.schema import TableShape, as_text
from hermes.store.words import segment, snippet
from hermes.types import Message

INDEX_BATCH_ROWS = 2000
EXTRA_HITS_LIMIT = 20
"""Number of extra hits read at once, since some may be copies or repetitions."""
MAX_EXAMINED_HITS = 200
"""Maximum number of hits examined to find ones with different text."""

MERGE = "INSERT INTO hermes_search (hermes_search, rank) VALUES ('merge', ?)"
MERGE_LIMIT_PAGES = 64
"""Number of index pages merged in one step, during which others wait to write."""


class HistoryHit(Struct, frozen=True):
    """A message that was found, with the part of it that matched."""

    message: Message
    title: str | None
    source: str
    snippet: str


class Search:
    """The search index of one store. Every method runs inside the caller's transaction."""

    def __init__(self, message_shape: TableShape, session_shape: TableShape) -> None:
        self._message_shape = message_shape
        self._reaches = Reaches(message_shape, session_shape)
        self._copies = Copies(message_shape)

    def behind(self, tx: Tx) -> bool:
        """Return True if some messages are not indexed yet."""
        newest = tx.execute("SELECT max(id) FROM messages").fetchone()[0] or 0
        return bool(newest > _indexed_upto(tx))

    # The index follows the table when someone searches: rows of other programs are found, and an append pays nothing.
    def catch_up(self, tx: Tx, limit: int = INDEX_BATCH_ROWS) -> int:
        """Index the next `limit` messages and return their number. Call it until that is 0."""
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

    def find(self, tx: Tx, text: str, scope: Scope, *, limit: int, narrowed: Narrowed = EVERYWHERE) -> list[HistoryHit]:
        """Return the messages within `scope` that match a question best, best first. "Quoted" phrases must occur."""
        return self._find(tx, self._reaches.of_person(scope, narrowed), text, limit)

    def related(self, tx: Tx, text: str, scope: Scope, *, limit: int, roles: Sequence[str]) -> list[HistoryHit]:
        """Return messages of `roles` within `scope` that match a question best, best first; never incognito ones."""
        return self._find(tx, self._reaches.of_memory(scope, roles), text.replace('"', " "), limit)

    def newest(self, tx: Tx, scope: Scope, *, since: float, until: float, limit: int) -> list[Message]:
        """Return user messages within `scope` and a time range, newest first; never incognito ones."""
        reach, shape = self._reaches.of_memory(scope, ("user",)), self._message_shape
        fields = [f"t.{name}" for name in shape.required] + [shape.field(name) for name in shape.optional]
        rows = tx.execute(
            f"SELECT {', '.join(fields)} FROM {reach.rows} WHERE {reach.where} AND {reach.shown} "
            "AND t.timestamp >= :since AND t.timestamp < :until ORDER BY t.id DESC LIMIT :limit",
            {**reach.values, "since": since, "until": until, "limit": limit},
        )
        return [message_from_row(row) for row in rows]

    def sessions_within(self, tx: Tx, scope: Scope) -> frozenset[str] | None:
        """Return the ids of the sessions within a scope; None for all."""
        reach = self._reaches.of_person(scope, EVERYWHERE)
        if reach.sessions is None:
            return None
        return frozenset(row["id"] for row in tx.execute(reach.sessions, dict(reach.values)))

    def _find(self, tx: Tx, reach: SearchReach, text: str, limit: int) -> list[HistoryHit]:
        """Return the best hits without copies. Hits with repeated text come last."""
        # Imported late: only searches need numpy.
        ranked: list[int] = import_module("hermes.store.finding").rank(tx, reach, text, limit)
        first: list[sqlite3.Row] = []
        again: list[sqlite3.Row] = []
        seen: set[str] = set()
        copies: dict[str, frozenset[int]] = {}
        for start in range(0, len(ranked), EXTRA_HITS_LIMIT + limit):
            if len(first) + len(again) >= limit and (len(first) >= limit or start > MAX_EXAMINED_HITS):
                break
            for row in self._read(tx, reach, ranked[start : start + EXTRA_HITS_LIMIT + limit]):
                if len(first) >= limit:
                    break
                session = row["session_id"]
                if session not in copies:
                    copies[session] = self._copies.of(tx, session)
                if row["id"] not in copies[session]:
                    said = " ".join((as_text(row["content"]) or "").split()).casefold()
                    (again if said in seen else first).append(row)
                    seen.add(said)
        return [_hit(row, text) for row in [*first, *again][:limit]]

    def _read(self, tx: Tx, reach: SearchReach, ids: Sequence[int]) -> list[sqlite3.Row]:
        shape = self._message_shape
        fields = [f"t.{name}" for name in shape.required] + [shape.field(name) for name in shape.optional]
        rows = tx.execute(
            f"SELECT {', '.join(fields)}, s.title AS session_title, s.source AS session_source FROM {reach.rows} "
            f"WHERE t.id IN (SELECT value FROM json_each(:ids)) AND {reach.where} AND {reach.shown}",
            {**reach.values, "ids": json.dumps(ids)},
        )
        found = {row["id"]: row for row in rows}
        return [found[key] for key in ids if key in found]

    def forget(self, tx: Tx, session_id: str) -> None:
        """Remove a session's messages from the index; they must still be in the table."""
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

    def tidy(self, tx: Tx, *, begin: bool) -> bool:
        """Merge a part of the index, which removes forgotten words from the file for good; `begin` with the first part.
        Return True if parts are left."""
        before = tx.total_changes
        tx.execute(MERGE, (-MERGE_LIMIT_PAGES if begin else MERGE_LIMIT_PAGES,))  # a negative number begins anew
        return tx.total_changes - before >= 2  # what SQLite says of a merge that is not at its end


def _hit(row: sqlite3.Row, text: str) -> HistoryHit:
    message = message_from_row(row)
    return HistoryHit(message, row["session_title"], row["session_source"], snippet(message.content or "", text))


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
