"""Messages of sessions, reduced to the properties that identify copies."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.store.copies import SESSION_META_ROLE, SUMMARY
from hermes.store.schema import TableShape, as_text, live_rows


@dataclass(frozen=True, slots=True)
class SaidMessage:
    id: int
    role: str
    time: float
    wording: int
    """A hash of role and text, to compare messages."""
    length: int
    signs: str
    """Its tool calls, the call that it answers, and its id on a platform: a compression writes none of these."""
    is_summary: bool
    is_live: bool

    def repeats(self, other: SaidMessage) -> bool:
        return (self.wording, self.signs) == (other.wording, other.signs)


def read_messages(tx: Tx, shape: TableShape, sessions: Collection[str], which: str) -> dict[str, list[SaidMessage]]:
    """Return the messages of some sessions that satisfy the condition `which`, in order. Reads them in one pass,
    because files of others may lack an index by session."""
    own = [shape.field(name) for name in ("tool_call_id", "tool_calls", "platform_message_id")]
    signs = " || ".join(f"coalesce({field}, '')" for field in own)
    rows = tx.execute(
        f"SELECT t.id, t.session_id, t.role, t.content, CAST(t.timestamp AS REAL) AS time, {signs} AS signs, "
        f"{live_rows(shape)} AS live FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
        f"WHERE t.session_id IN (SELECT value FROM json_each(?)) AND t.role <> '{SESSION_META_ROLE}' "
        f"AND {which} ORDER BY t.id",
        (json.dumps(sorted(sessions)),),
    )
    found: dict[str, list[SaidMessage]] = {}
    for row in rows:
        text = as_text(row["content"]) or ""
        message = SaidMessage(
            row["id"],
            row["role"],
            row["time"] or 0.0,
            hash((row["role"], text.strip())),
            len(text),
            str(row["signs"]),
            SUMMARY.match(text) is not None,
            bool(row["live"]),
        )
        found.setdefault(row["session_id"], []).append(message)
    return found
