"""Messages: appended, read, never changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from hermes.db.engine import Tx
from hermes.errors import NotFoundError
from hermes.store.schema import TableShape, as_text, as_time, kept_rows, live_rows
from hermes.store.sessions import Sessions
from hermes.types import Compression, Draft, Message, ToolCall

PAGE = 500


class Messages:
    """The `messages` table of one store. Every method runs inside the caller's transaction."""

    def __init__(self, shape: TableShape, sessions: Sessions) -> None:
        self._shape = shape
        self._sessions = sessions
        self._live = live_rows(shape)
        self._kept = kept_rows(shape)

    def append(self, tx: Tx, session_id: str, drafts: Sequence[Draft], *, now: float) -> list[Message]:
        """Store messages at the end of a session, in order. They are committed with the transaction."""
        if not self._sessions.exists(tx, session_id):
            raise NotFoundError(f"there is no session '{session_id}'")
        stored = [self._insert(tx, session_id, draft, now) for draft in drafts]
        self._sessions.count_messages(tx, session_id, len(stored))
        return stored

    def _insert(self, tx: Tx, session_id: str, draft: Draft, now: float) -> Message:
        values = {**asdict(draft), "session_id": session_id, "timestamp": now}
        calls = [call.to_wire() for call in draft.tool_calls]
        values["tool_calls"] = json.dumps(calls, ensure_ascii=False) if calls else None
        stored = self.get(tx, self._shape.insert(tx, values))
        assert stored is not None, "a row that was just inserted is there"
        return stored

    def live(self, tx: Tx, session_id: str, compression: Compression | None) -> list[Message]:
        """What the live view needs and no more: messages after the horizon and those the compression keeps."""
        horizon = compression.horizon_message_id if compression else 0
        kept = json.dumps(compression.kept_ids if compression else ())
        rows = [
            *tx.execute(
                f"{self._shape.select} WHERE t.id IN (SELECT value FROM json_each(?)) AND {self._live} ORDER BY t.id",
                (kept,),
            ),
            *tx.execute(
                f"{self._shape.select} WHERE t.session_id = ? AND t.id > ? AND {self._live} ORDER BY t.id",
                (session_id, horizon),
            ),
        ]
        return [message_from_row(row) for row in rows]

    def history(self, tx: Tx, session_id: str) -> Iterator[Message]:
        """Everything that was said, oldest first, also what a compression replaced; rewound messages are left out."""
        after = 0
        while True:
            rows = tx.execute(
                f"{self._shape.select} WHERE t.session_id = ? AND t.id > ? AND {self._kept} ORDER BY t.id LIMIT ?",
                (session_id, after, PAGE),
            ).fetchall()
            if not rows:
                return
            yield from map(message_from_row, rows)
            after = rows[-1]["id"]

    def get(self, tx: Tx, message_id: int) -> Message | None:
        """One message, or None when it was deleted."""
        row = tx.execute(f"{self._shape.select} WHERE t.id = ?", (message_id,)).fetchone()
        return None if row is None else message_from_row(row)

    def reply_after(self, tx: Tx, session_id: str, message_id: int) -> Message | None:
        """The first finished reply that was given after a message, or None: what it answers, it answers too."""
        rows = tx.execute(
            f"{self._shape.select} WHERE t.session_id = ? AND t.id > ? AND t.role = 'assistant' AND {self._kept} "
            "ORDER BY t.id",
            (session_id, message_id),
        )
        found = map(message_from_row, rows)
        return next((m for m in found if m.content and not m.tool_calls and m.finish_reason != "error"), None)

    def said_after(self, tx: Tx, session_id: str, message_id: int) -> list[int]:
        """What people said after a message, by its ids, in order."""
        rows = tx.execute(
            f"SELECT t.id FROM messages t WHERE t.session_id = ? AND t.id > ? AND t.role = 'user' AND {self._kept} "
            "ORDER BY t.id",
            (session_id, message_id),
        )
        return [int(row["id"]) for row in rows]

    def last_id(self, tx: Tx, session_id: str) -> int:
        """The newest message's id, or 0."""
        row = tx.execute("SELECT max(id) FROM messages WHERE session_id = ?", (session_id,)).fetchone()
        return int(row[0] or 0)


def message_from_row(row: sqlite3.Row) -> Message:
    """A message as the store has it. Tool calls that are not valid JSON are kept as none rather than failing."""
    return Message(
        id=row["id"],
        session_id=row["session_id"],
        role=row["role"],
        content=as_text(row["content"]),
        timestamp=as_time(row["timestamp"]),
        tool_calls=_parse_calls(row["tool_calls"]),
        tool_call_id=row["tool_call_id"],
        tool_name=row["tool_name"],
        reasoning=row["reasoning"],
        finish_reason=row["finish_reason"],
        token_count=row["token_count"],
        platform_message_id=row["platform_message_id"],
        author_id=row["author_id"],
        author_name=row["author_name"],
    )


def _parse_calls(text: str | bytes | None) -> tuple[ToolCall, ...]:
    if not text:
        return ()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    calls = value if isinstance(value, list) else []
    return tuple(ToolCall.from_wire(call) for call in calls if isinstance(call, dict))
