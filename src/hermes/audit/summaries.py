"""Summaries that an older version put into a conversation twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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


def find_double_summaries(tx: Tx, case: Case) -> Iterator[Damage]:
    """Every session that shows one summary more than once. The first copy stays."""
    _, shape = read_shape(tx)
    births = {child.id: child.started_at + BIRTH for child in case.sessions.values() if case.parent(child) is not None}
    compacted = _last_compacted(tx, shape)
    for session_id in sorted(_with_summaries(tx, shape) | births.keys() | compacted.keys()):
        copies = find_copies(_live_rows(tx, shape, session_id), births.get(session_id), compacted.get(session_id))
        if copies:
            again = "once more" if len(copies) == 1 else f"{len(copies)} more times"
            detail = f"session {session_id} holds one summary {again}: the model reads the same past again and again"
            yield Damage("double-summary", (session_id,), detail, (Hide(tuple(copies)),))


def find_copies(rows: Iterable[Row], born_until: float | None, last_compacted: int | None) -> list[int]:
    """The ids of all but the first copy of each summary.

    Copies have the same role and text, with nothing a person said between them, or within a second. A text that does
    not begin like a summary counts only where a compression has just been, and within the same second.
    """
    copies: list[int] = []
    first: dict[tuple[str, str], Row] = {}
    spoken: dict[tuple[str, str], int] = {}
    said = since_compacted = 0
    for row in rows:
        marked = SUMMARY.match(row.text) is not None
        fresh = (born_until is not None and row.timestamp <= born_until) or (
            last_compacted is not None and row.id > last_compacted and since_compacted == 0
        )
        name = (row.role, row.text)
        before = first.get(name)
        if before is not None and row.is_plain:
            near = abs(row.timestamp - before.timestamp) < SAME_MOMENT
            if (marked and (near or said == spoken[name])) or (not marked and near and said == spoken[name]):
                copies.append(row.id)
                continue
        by_person = row.role == "user" and not marked
        if row.is_plain and (marked or (fresh and len(row.text) >= LONG)):
            first[name] = row
            spoken[name] = said + (1 if by_person else 0)
        said += by_person
        since_compacted += by_person and last_compacted is not None and row.id > last_compacted
    return copies


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


def _live_rows(tx: Tx, shape: TableShape, session_id: str) -> Iterator[Row]:
    own = [shape.field(name) for name in ("tool_call_id", "tool_calls", "platform_message_id")]
    signs = " || ".join(f"coalesce({field}, '')" for field in own)
    rows = tx.execute(
        f"SELECT t.id, t.role, t.content, CAST(t.timestamp AS REAL) AS timestamp, {signs} AS signs FROM messages t "
        f"LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
        f"WHERE t.session_id = ? AND {live_rows(shape)} ORDER BY t.id",
        (session_id,),
    )
    for row in rows:
        text = as_text(row["content"]) or ""
        yield Row(row["id"], row["role"], text, row["timestamp"], bool(text) and not row["signs"])
