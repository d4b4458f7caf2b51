"""Summaries that an older version put into a conversation twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hermes.audit.case import BIRTH, Case
from hermes.audit.damage import Damage, Hide
from hermes.db.engine import Tx
from hermes.store.schema import TableShape, as_text, live_rows, read_shape

SUMMARY = re.compile(r"\s*\[\s*(context (compaction|summary|compression)|(conversation )?summary\b|compressed )", re.I)
"""How older versions began a summary that they stored as a message."""
LONG = 200
"""Characters from which a text that a compression wrote is one that nobody writes twice in the same second."""
SAME_MOMENT = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """A live message, as far as it matters whether it is there twice."""

    id: int
    role: str
    text: str
    timestamp: float
    is_plain: bool
    """Written by a compression for all one can tell: no platform's message, no tool call, no result."""


class Copies:
    """Finds all but the first copy of each summary in one session, given its live messages in order.

    Copies have the same role and text, with nothing a person said between them, or within a second. A text that does
    not begin like a summary counts only where a compression has just been, and within the same second.
    """

    def __init__(self, born_until: float | None, last_compacted: int | None) -> None:
        self.found: list[int] = []
        self._born_until = born_until
        self._last_compacted = last_compacted
        self._first: dict[tuple[str, str], tuple[Row, int]] = {}
        self._said = 0
        self._said_since_compacted = 0

    def see(self, row: Row) -> None:
        """The next message."""
        marked = SUMMARY.match(row.text) is not None
        if row.is_plain and self._is_copy(row, marked):
            self.found.append(row.id)
            return
        by_person = row.role == "user" and not marked
        fresh = self._is_fresh(row)
        self._said += by_person
        if self._last_compacted is not None and row.id > self._last_compacted:
            self._said_since_compacted += by_person
        if row.is_plain and (marked or (fresh and len(row.text) >= LONG)):
            self._first[row.role, row.text] = (row, self._said)

    def _is_copy(self, row: Row, marked: bool) -> bool:
        first, said = self._first.get((row.role, row.text), (None, 0))
        if first is None:
            return False
        at_once, nothing_between = abs(row.timestamp - first.timestamp) < SAME_MOMENT, said == self._said
        return at_once or nothing_between if marked else at_once and nothing_between

    def _is_fresh(self, row: Row) -> bool:
        """Whether a compression may have written it: in a child's first moments, or first after what was compacted."""
        if self._born_until is not None and row.timestamp <= self._born_until:
            return True
        after = self._last_compacted is not None and row.id > self._last_compacted
        return after and self._said_since_compacted == 0


def find_double_summaries(tx: Tx, case: Case) -> Iterator[Damage]:
    """Every session that shows one summary more than once. The first copy stays."""
    if not case.has_older_traces:
        return  # we never store a summary as a message, whatever someone writes
    _, shape = read_shape(tx)
    births = {child.id: child.started_at + BIRTH for child in case.sessions.values() if case.parent(child) is not None}
    compacted = _last_compacted(tx, shape)
    wanted = _with_summaries(tx, shape) | births.keys() | compacted.keys()
    copies = {session_id: Copies(births.get(session_id), compacted.get(session_id)) for session_id in sorted(wanted)}
    for session_id, row in _live_rows(tx, shape) if copies else ():
        if session_id in copies:
            copies[session_id].see(row)
    for session_id, found in copies.items():
        if found.found:
            again = "once more" if len(found.found) == 1 else f"{len(found.found)} more times"
            detail = f"session {session_id} holds one summary {again}: the model reads the same past again and again"
            yield Damage("double-summary", (session_id,), detail, (Hide(tuple(found.found)),))


def _with_summaries(tx: Tx, shape: TableShape) -> set[str]:
    """The sessions with a live message that begins like a summary."""
    rows = tx.execute(
        f"SELECT t.session_id, substr(t.content, 1, 64) AS opening FROM messages t "
        f"WHERE ltrim(substr(t.content, 1, 8)) LIKE '[%' AND {live_rows(shape)}"
    )
    return {row["session_id"] for row in rows if SUMMARY.match(as_text(row["opening"]) or "")}


def _last_compacted(tx: Tx, shape: TableShape) -> dict[str, int]:
    if not {"active", "compacted"} <= shape.columns:
        return {}
    rows = tx.execute(
        "SELECT session_id, max(id) AS newest FROM messages WHERE compacted = 1 AND active = 0 GROUP BY session_id"
    )
    return {row["session_id"]: row["newest"] for row in rows}


def _live_rows(tx: Tx, shape: TableShape) -> Iterator[tuple[str, Row]]:
    """All live messages with their sessions, in one pass: files of others need not have an index by session."""
    own = [shape.field(name) for name in ("tool_call_id", "tool_calls", "platform_message_id")]
    signs = " || ".join(f"coalesce({field}, '')" for field in own)
    rows = tx.execute(
        f"SELECT t.id, t.session_id, t.role, t.content, CAST(t.timestamp AS REAL) AS timestamp, {signs} AS signs "
        "FROM messages t LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
        f"WHERE {live_rows(shape)} ORDER BY t.id"
    )
    for row in rows:
        text = as_text(row["content"]) or ""
        plain = bool(text) and not row["signs"]
        yield row["session_id"], Row(row["id"], row["role"], text, row["timestamp"], plain)
