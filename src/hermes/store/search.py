"""Full-text search over everything that was said, in any script.

Chinese, Japanese and Korean are written without the spaces a tokenizer looks for, so each such character is indexed
as a word of its own and a run of them is searched as a phrase: that finds exactly the substring, of any length.

The index is filled from the table, in order, up to a mark: rows that another program appended are found as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.store.messages import Messages, message_from_row
from hermes.store.schema import TableShape
from hermes.types import Message

CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
CJK_CHARACTER = re.compile(f"[{CJK}]")
WORDS = re.compile(rf'"[^"]*"|[{CJK}]+|[^\W{CJK}]+', re.UNICODE)
BATCH = 2000
SNIPPET = 120


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found, with the part of it that matched."""

    message: Message
    title: str | None
    source: str
    snippet: str


class Search:
    """The search index of one store. Every method runs inside the caller's transaction."""

    def __init__(self, messages: Messages, message_shape: TableShape, session_shape: TableShape) -> None:
        self._messages = messages
        self._message_shape = message_shape
        self._session_shape = session_shape

    def behind(self, tx: Tx) -> bool:
        """Whether there are messages that the index has not seen."""
        newest = tx.execute("SELECT max(id) FROM messages").fetchone()[0] or 0
        return bool(newest > _indexed_upto(tx))

    def catch_up(self, tx: Tx, limit: int = BATCH) -> int:
        """Index the next `limit` messages; returns how many there were. Call it until that is 0."""
        rows = tx.execute(
            "SELECT id, content FROM messages WHERE id > ? ORDER BY id LIMIT ?", (_indexed_upto(tx), limit)
        ).fetchall()
        if rows:
            tx.executemany(
                "INSERT INTO hermes_search (rowid, text) VALUES (?, ?)",
                [(row["id"], segment(row["content"])) for row in rows if isinstance(row["content"], str)],
            )
            tx.execute("UPDATE hermes_search_state SET indexed_upto = ?", (rows[-1]["id"],))
        return len(rows)

    def find(
        self, tx: Tx, text: str, *, limit: int, session_id: str | None = None, source: str | None = None
    ) -> list[Hit]:
        """The best matches, best first; none when `text` holds no word."""
        query = compile_query(text)
        if not query:
            return []
        fields = ", ".join(f"m.{name}" for name in (*self._message_shape.required, *self._message_shape.optional))
        rows = tx.execute(
            f"""
            SELECT {fields}, s.title AS session_title, s.source AS session_source
            FROM hermes_search f
            JOIN ({self._message_shape.select} WHERE {self._messages.searchable_sql()}) m ON m.id = f.rowid
            JOIN ({self._session_shape.select}) s ON s.id = m.session_id
            WHERE hermes_search MATCH ?1 AND (?2 IS NULL OR m.session_id = ?2) AND (?3 IS NULL OR s.source = ?3)
            ORDER BY bm25(hermes_search), m.id DESC LIMIT ?4
            """,
            (query, session_id, source, limit),
        )
        return [
            Hit(message, row["session_title"], row["session_source"], snippet(message.content or "", text))
            for row, message in ((row, message_from_row(row)) for row in rows)
        ]

    def forget(self, tx: Tx, session_id: str) -> int:
        """Take a session's messages out of the index; they must still be in the table."""
        rows = tx.execute(
            "SELECT id, content FROM messages WHERE session_id = ? AND id <= ?",
            (session_id, _indexed_upto(tx)),
        ).fetchall()
        entries = [(row["id"], segment(row["content"])) for row in rows if isinstance(row["content"], str)]
        tx.executemany("INSERT INTO hermes_search (hermes_search, rowid, text) VALUES ('delete', ?, ?)", entries)
        return len(entries)


def segment(text: str) -> str:
    """`text` with every CJK character as a word of its own."""
    return CJK_CHARACTER.sub(lambda found: f" {found[0]} ", text)


def compile_query(text: str) -> str:
    """What a person typed as an FTS5 query: every word must occur, "quoted words" as a phrase. Never invalid."""
    phrases = [_phrase(found) for found in WORDS.findall(text)]
    return " AND ".join(f'"{phrase}"' for phrase in phrases if phrase)


def _phrase(found: str) -> str:
    return " ".join(re.findall(r"\w+", segment(found)))


def snippet(content: str, query: str, width: int = SNIPPET) -> str:
    """One line of `content` around the first word of the query."""
    flat = " ".join(content.split())
    lowered = flat.lower()
    words = [word.strip('"').lower() for word in WORDS.findall(query)]
    places = [place for word in words if (place := lowered.find(word)) >= 0]
    # A stemmed match ("running" for "run") may not occur as typed: then its first letters do.
    places = places or [place for word in words if (place := lowered.find(word[:4])) >= 0]
    start = max(0, min(places, default=0) - width // 3)
    cut = flat[start : start + width]
    return ("…" if start else "") + cut + ("…" if start + width < len(flat) else "")


def _indexed_upto(tx: Tx) -> int:
    return int(tx.execute("SELECT indexed_upto FROM hermes_search_state").fetchone()[0])
