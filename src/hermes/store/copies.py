"""Copies: messages that another version's compression in place wrote once more beside its summary.

Such a compression marks every live row as compacted and writes anew what stays: the first messages, its summary, and
the last ones. A copy has what its original says and either the original's time or that of the summary, to the fraction
of a second; nobody says the same again at such a moment, so what only looks alike is no copy.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from hermes.db.engine import Tx
from hermes.store.schema import TableShape, as_text, as_time, kept_rows

SUMMARY = re.compile(r"\s*\[(CONTEXT COMPACTION|CONTEXT SUMMARY\]:|PRIOR CONTEXT —)")
"""How other versions begin a summary that they store as a message, alone or merged into the first that they keep."""
FIRST = 50
"""Rows at most that a compression keeps before its summary."""
REMARK = "session_meta"
"""The role of rows in which other versions keep how a session was set up."""
MOMENT = 0.05
"""Seconds in which one compression writes its rows."""


class Copies:
    """Finds the copies in a session, where a compression in place has been. It runs in the caller's transaction."""

    def __init__(self, messages: TableShape) -> None:
        self._has_marks = "compacted" in messages.columns
        calls, call_id = messages.field("tool_calls"), messages.field("tool_call_id")
        self._select = (
            f"SELECT t.id, t.role, t.content, t.timestamp, {calls} AS calls, {call_id} AS call_id FROM messages t "
            "LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            f"WHERE t.session_id = ? AND t.role <> '{REMARK}' AND {kept_rows(messages)} ORDER BY t.id"
        )

    def of(self, tx: Tx, session_id: str) -> frozenset[int]:
        """The ids of the copies among what was said in a session."""
        if not self._has_marks:
            return frozenset()
        marked = "SELECT 1 FROM messages WHERE session_id = ? AND compacted = 1 LIMIT 1"
        if tx.execute(marked, (session_id,)).fetchone() is None:
            return frozenset()
        return find_copies(tx.execute(self._select, (session_id,)).fetchall())


def find_copies(rows: Sequence[sqlite3.Row]) -> frozenset[int]:
    """Which of a session's rows, given in order, repeat an earlier one beside a summary."""
    earlier: dict[tuple[object, ...], list[float]] = {}
    repeats: list[set[float]] = []
    for row in rows:
        said_at = earlier.setdefault(_wording(row), [])
        repeats.append(set(said_at))
        said_at.append(as_time(row["timestamp"]))
    found: set[int] = set()
    for place, row in enumerate(rows):
        if SUMMARY.match(as_text(row["content"]) or ""):
            written = as_time(row["timestamp"])
            found |= _before(rows, place, written) | _after(rows, repeats, place, written)
    return frozenset(found)


def _before(rows: Sequence[sqlite3.Row], place: int, written: float) -> set[int]:
    """The session's first messages, right above the summary."""
    for length in range(min(place // 2, FIRST), 0, -1):
        firsts, above = rows[:length], rows[place - length : place]
        pairs = list(zip(firsts, above, strict=True))
        if all(_wording(first) == _wording(row) for first, row in pairs) and all(
            _is_copy(row, {as_time(first["timestamp"])}, written) for first, row in pairs
        ):
            return {row["id"] for row in above}
    return set()


def _after(rows: Sequence[sqlite3.Row], repeats: list[set[float]], place: int, written: float) -> set[int]:
    """The last messages, below the summary: nothing that was said later is older than it."""
    found: set[int] = set()
    for below in range(place + 1, len(rows)):
        if as_time(rows[below]["timestamp"]) > written + MOMENT:
            break
        if _is_copy(rows[below], repeats[below], written):
            found.add(rows[below]["id"])
    return found


def _is_copy(row: sqlite3.Row, said_at: set[float], written: float) -> bool:
    time = as_time(row["timestamp"])
    return bool(said_at) and (time in said_at or abs(time - written) <= MOMENT)


def _wording(row: sqlite3.Row) -> tuple[object, ...]:
    """What makes two rows say the same: a tool's result belongs to its call, however much of it was kept."""
    if row["role"] == "tool" and row["call_id"]:
        return ("tool", row["call_id"])
    return (row["role"], row["content"], row["calls"])
