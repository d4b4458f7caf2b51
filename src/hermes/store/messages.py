"""Messages: appended, read, never changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from heapq import merge

from hermes.db.engine import Tx
from hermes.store.copies import SESSION_META_ROLE, Copies
from hermes.store.hidden import MENDED_IDS
from hermes.store.schema import (
    MAX_EPOCH_SECONDS,
    MESSAGE_OPTIONAL,
    MESSAGE_REQUIRED,
    TableShape,
    as_text,
    as_time,
    kept_rows,
    live_rows,
    undone_rows,
    unmended_rows,
)
from hermes.store.sessions import Sessions
from hermes.types import Compression, Draft, Message, ToolCall

HISTORY_PAGE_ROWS = 500
MAX_ID = 2**63 - 1
DRAFT_FIELDS = Draft.__struct_fields__
FIELD_COUNT = len(MESSAGE_REQUIRED) + len(MESSAGE_OPTIONAL)


class Messages:
    """The `messages` table of one store. Every method runs inside the caller's transaction."""

    def __init__(self, shape: TableShape, sessions: Sessions) -> None:
        self._shape = shape
        self._sessions = sessions
        self._live, self._unmended = live_rows(shape), unmended_rows(shape)
        self._kept = kept_rows(shape)
        self._undone = undone_rows(shape)
        self._copies = Copies(shape)

    def append(self, tx: Tx, session_id: str, drafts: Sequence[Draft], *, now: float) -> list[Message]:
        """Store messages at the end of a session, in order."""
        self._sessions.require(tx, session_id)
        stored = [self._insert(tx, session_id, draft, now) for draft in drafts]
        self._sessions.count_messages(tx, session_id, len(stored))
        return stored

    def _insert(self, tx: Tx, session_id: str, draft: Draft, now: float) -> Message:
        calls = [call.to_wire() for call in draft.tool_calls]
        values = {name: getattr(draft, name) for name in DRAFT_FIELDS} | {
            "session_id": session_id,
            "timestamp": now,
            "tool_calls": json.dumps(calls, ensure_ascii=False) if calls else None,
        }
        stored = self.get(tx, self._shape.insert(tx, values))
        assert stored is not None, "a row that was just inserted is there"
        return stored

    def live(self, tx: Tx, session_id: str, compression: Compression | None) -> list[Message]:
        """Return exactly the messages that the live view needs: those after the horizon, and those the compression
        keeps."""
        if compression is None:
            return self.live_after(tx, session_id, 0)
        rows = tx.execute(
            f"{self._shape.select} WHERE t.id IN (SELECT value FROM json_each(?)) AND {self._live} ORDER BY t.id",
            (json.dumps(compression.kept_ids),),
        )
        return [*map(message_from_row, rows), *self.live_after(tx, session_id, compression.horizon_message_id)]

    def live_after(self, tx: Tx, session_id: str, message_id: int) -> list[Message]:
        """Return the live messages of a session after `message_id`, in order."""
        # Looking each row up among the mended ones takes as long as reading it, and most files have none.
        mended = tx.execute(f"{MENDED_IDS} LIMIT 1").fetchone() is not None
        live = self._live if mended else self._unmended
        rows = tx.execute(
            f"{self._shape.select} WHERE t.session_id = ? AND t.id > ? AND {live} ORDER BY t.id",
            (session_id, message_id),
        )
        return list(map(message_from_row, rows))

    def history(self, tx: Tx, session_id: str) -> Iterator[Message]:
        """Yield every message once, oldest first, including those a compression replaced. Excluded are retracted
        messages, copies that another version's compression wrote, and its `session_meta` rows."""
        after, copies = 0, self._copies.of(tx, session_id)
        while True:
            rows = tx.execute(
                f"{self._shape.select} WHERE t.session_id = ? AND t.id > ? AND {self._kept} ORDER BY t.id LIMIT ?",
                (session_id, after, HISTORY_PAGE_ROWS),
            ).fetchall()
            if not rows:
                return
            said = (row for row in rows if row["id"] not in copies and row["role"] != SESSION_META_ROLE)
            yield from map(message_from_row, said)
            after = rows[-1]["id"]

    def newest(self, tx: Tx, session_id: str, before: int | None, limit: int) -> list[Message]:
        """Return the last `limit` messages of the history, or of its part before `before`, in order."""
        rows = tx.execute(
            f"{self._shape.select} WHERE t.session_id = ? AND t.id < ? AND {self._kept} AND t.role <> ? "
            "AND t.id NOT IN (SELECT value FROM json_each(?)) ORDER BY t.id DESC LIMIT ?",
            (session_id, before or MAX_ID, SESSION_META_ROLE, json.dumps(list(self._copies.of(tx, session_id))), limit),
        ).fetchall()
        return [message_from_row(row) for row in reversed(rows)]

    def undone(self, tx: Tx, session_id: str) -> Iterator[Message]:
        """Yield retracted messages, oldest first, whether undone here or rewound by another version."""
        rows = tx.execute(
            f"{self._shape.select} WHERE t.session_id = ? AND {self._undone} ORDER BY t.id", (session_id,)
        )
        return (message_from_row(row) for row in rows if row["role"] != SESSION_META_ROLE)

    def with_undone(self, tx: Tx, session_id: str) -> Iterator[Message]:
        """Yield the history together with retracted messages, in order."""
        return merge(self.history(tx, session_id), self.undone(tx, session_id), key=lambda message: message.id)

    def copies(self, tx: Tx, session_id: str) -> frozenset[int]:
        """Return the ids of copies that another version's compression wrote."""
        return self._copies.of(tx, session_id)

    def get(self, tx: Tx, message_id: int) -> Message | None:
        """Return one message, or None if it was deleted."""
        row = tx.execute(f"{self._shape.select} WHERE t.id = ?", (message_id,)).fetchone()
        return None if row is None else message_from_row(row)

    def reply_after(self, tx: Tx, session_id: str, message_id: int) -> Message | None:
        """Return the first finished reply after a message, or None."""
        rows = tx.execute(
            f"{self._shape.select} WHERE t.session_id = ? AND t.id > ? AND t.role = 'assistant' AND {self._kept} "
            "ORDER BY t.id",
            (session_id, message_id),
        )
        found = map(message_from_row, rows)
        return next((m for m in found if m.content and not m.tool_calls and m.finish_reason != "error"), None)

    def last_replies(self, tx: Tx, session_id: str, count: int) -> list[str]:
        """Return the last finished replies of a session, newest first."""
        calls = self._shape.field("tool_calls")
        rows = tx.execute(
            "SELECT t.content FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            f"WHERE t.session_id = ? AND t.role = 'assistant' AND t.content <> '' AND {calls} IS NULL AND {self._kept} "
            "ORDER BY t.id DESC LIMIT ?",
            (session_id, count),
        )
        return [as_text(row["content"]) or "" for row in rows]

    def said_after(self, tx: Tx, session_id: str, message_id: int) -> list[int]:
        """Return the ids of user messages after a message, in order."""
        rows = tx.execute(
            f"SELECT t.id FROM messages t WHERE t.session_id = ? AND t.id > ? AND t.role = 'user' AND {self._kept} "
            "ORDER BY t.id",
            (session_id, message_id),
        )
        return [int(row["id"]) for row in rows]

    def find_said(self, tx: Tx, session_id: str, text: str) -> int:
        """Return the id of the newest user message with this text, or 0."""
        said = f"t.session_id = ? AND t.role = 'user' AND t.content = ? AND {self._kept}"
        found = tx.execute(f"SELECT max(t.id) FROM messages t WHERE {said}", (session_id, text))
        return int(found.fetchone()[0] or 0)

    def last_said(self, tx: Tx, session_id: str) -> int:
        """Return the id of the newest user message, or 0."""
        query = f"SELECT max(t.id) FROM messages t WHERE t.session_id = ? AND t.role = 'user' AND {self._kept}"
        return int(tx.execute(query, (session_id,)).fetchone()[0] or 0)

    def spoken_last(self, tx: Tx, session_id: str) -> str:
        """Return all assistant text of the last turn: the reply, and the texts before its tool calls."""
        rows = tx.execute(
            "SELECT t.content FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            f"WHERE t.session_id = ? AND t.id > ? AND t.role = 'assistant' AND t.content <> '' AND {self._kept} "
            "ORDER BY t.id",
            (session_id, self.last_said(tx, session_id)),
        )
        return "\n\n".join(as_text(row["content"]) or "" for row in rows)

    def last_alt(self, tx: Tx, session_id: str, author_id: str | None) -> str | None:
        """Return the alternative id of an author, from their newest message in the session that has one."""
        author, alt = self._shape.field("author_id"), self._shape.field("author_alt")
        row = tx.execute(
            f"SELECT {alt} AS alt FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            f"WHERE t.session_id = ? AND {author} = ? AND {alt} IS NOT NULL ORDER BY t.id DESC LIMIT 1",
            (session_id, author_id),
        ).fetchone()
        return None if row is None else str(row["alt"])

    def replies_since_person(self, tx: Tx, session_id: str) -> tuple[int, int]:
        """Return the id of the newest message by a human, or 0, and the number of replies after it."""
        is_agent, calls = self._shape.field("author_is_agent"), self._shape.field("tool_calls")
        joined = "FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id WHERE t.session_id = ?"
        person = tx.execute(
            f"SELECT max(t.id) {joined} AND t.role = 'user' AND coalesce({is_agent}, 0) = 0 AND {self._kept}",
            (session_id,),
        ).fetchone()[0]
        replies = tx.execute(
            f"SELECT count(*) {joined} AND t.id > ? AND t.role = 'assistant' AND t.content <> '' AND {calls} IS NULL "
            f"AND {self._kept}",
            (session_id, person or 0),
        ).fetchone()[0]
        return int(person or 0), int(replies)

    def newest_times(self, tx: Tx, count: int) -> list[tuple[str, float, bool]]:
        """Return session, time and whether it is a reply, for user and assistant messages among the store's newest
        `count`, in order. Messages with tool calls and tool results are left out."""
        rows = tx.execute(
            "SELECT t.session_id, t.timestamp, t.role FROM messages t "
            "LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            "WHERE t.id > (SELECT max(id) FROM messages) - ? AND t.role IN ('user', 'assistant') "
            f"AND {self._shape.field('tool_calls')} IS NULL AND {self._kept} ORDER BY t.id",
            (count,),
        )
        return [(row["session_id"], as_time(row["timestamp"]), row["role"] == "assistant") for row in rows]

    def last_id(self, tx: Tx, session_id: str) -> int:
        """Return the id of the newest message, or 0."""
        row = tx.execute("SELECT max(id) FROM messages WHERE session_id = ?", (session_id,)).fetchone()
        return int(row[0] or 0)


def message_from_row(row: sqlite3.Row) -> Message:
    """Return the message stored in a row that begins with its fields. Tool calls that are not valid JSON are
    dropped."""
    # This runs for every message of every turn: one unpacking, and the expected type is tested before the others.
    key, session, role, content, at, call_id, calls, tool, tokens, finish, thought, sent, *author = row[:FIELD_COUNT]
    author_id, name, alt, owner, agent = author
    text = content if isinstance(content, str) else as_text(content)
    if not (isinstance(at, float) and 0 <= at <= MAX_EPOCH_SECONDS):
        at = as_time(at)
    parsed, is_owner = _parse_calls(calls) if calls else (), None if owner is None else bool(owner)
    return Message(
        key, session, role, text, at, parsed, call_id, tool, thought, finish, tokens, sent, author_id, name, alt,
        is_owner, None if agent is None else bool(agent),
    )  # fmt: skip


def _parse_calls(text: str | bytes) -> tuple[ToolCall, ...]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    calls = value if isinstance(value, list) else []
    return tuple(ToolCall.from_wire(call) for call in calls if isinstance(call, dict))
