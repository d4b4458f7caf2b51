"""Copies: messages that another version's compression in place wrote again beside its summary.

Such a compression marks every live row as compacted and rewrites what stays: the first messages, its summary, and the
last ones. A copy has its original's text and either the original's time or that of the summary, to the fraction of a
second. Nobody repeats a message at exactly such a moment, so equal text alone does not make a copy.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Sequence
from itertools import takewhile

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.store.schema import TableShape, as_text, as_time, kept_rows
from hermes.types import Session

SUMMARY = re.compile(r"\A\s*\[(CONTEXT COMPACTION|CONTEXT SUMMARY\]:|PRIOR CONTEXT —)")
"""Opening of a summary that another version stored as a message, alone or merged into the first message it kept."""
MERGED = "PRIOR CONTEXT —"
"""Text that a merged summary puts around the message."""
MAX_KEPT_ROWS = 500
"""Maximum number of rows that a compression keeps before its summary, and after it."""
SESSION_META_ROLE = "session_meta"
"""Role of rows in which other versions store how a session was set up."""
COMPRESSION_WRITE_SECONDS = 0.05
"""Maximum time in which one compression writes its rows."""
ROTATION_WRITE_SECONDS = 5.0
"""Maximum time in which a compression that moves a conversation to a new session writes the rows there."""


class SaidRow(Struct, frozen=True):
    """The fields of a message that identify its copies."""

    id: int
    time: float
    text: str
    wording: tuple[object, ...]
    """Comparison key: equal for rows that say the same. A tool result, whose text may be cut, compares by its call
    id."""

    @classmethod
    def read(cls, row: sqlite3.Row) -> SaidRow:
        text = as_text(row["content"]) or ""
        answers = row["role"] == "tool" and row["call_id"]
        wording = ("tool", row["call_id"]) if answers else (row["role"], text.strip(), row["calls"])
        return cls(row["id"], as_time(row["timestamp"]), text, wording)


class Copies:
    """Finds copies in sessions that another version compressed in place. Every method runs inside the caller's
    transaction."""

    def __init__(self, messages: TableShape) -> None:
        self._has_marks = "compacted" in messages.columns
        calls, call_id = messages.field("tool_calls"), messages.field("tool_call_id")
        self._select = (
            f"SELECT t.id, t.role, t.content, t.timestamp, {calls} AS calls, {call_id} AS call_id FROM messages t "
            "LEFT JOIN hermes_message_extra x ON x.message_id = t.id "
            f"WHERE t.session_id = ? AND t.role <> '{SESSION_META_ROLE}' AND {kept_rows(messages)} ORDER BY t.id"
        )

    def of(self, tx: Tx, session_id: str) -> frozenset[int]:
        """Return the ids of a session's messages that are copies."""
        if not self._has_marks:
            return frozenset()
        marked = "SELECT 1 FROM messages WHERE session_id = ? AND compacted = 1 LIMIT 1"
        if tx.execute(marked, (session_id,)).fetchone() is None:
            return frozenset()
        return _find_copies(self.said(tx, session_id))

    def said(self, tx: Tx, session_id: str) -> list[SaidRow]:
        """Return the messages of a session, in order."""
        return [SaidRow.read(row) for row in tx.execute(self._select, (session_id,))]

    def from_parent(
        self, tx: Tx, session: Session, theirs: Sequence[SaidRow], hidden: Collection[int]
    ) -> frozenset[int]:
        """Return the ids of messages that a session has from its parent: copies beside the summary of a rotation, and a
        branch's common beginning. Repetitions of the parent's `hidden` messages count too, if they were written as the
        session began."""
        ours = self.said(tx, session.id)
        pairs = zip(theirs, ours, strict=False)
        branched = {copy.id for _, copy in takewhile(lambda pair: pair[0].wording == pair[1].wording, pairs)}
        secret = {said.wording for said in theirs if said.id in hidden}
        told = {said.id for said in ours if said.wording in secret and _is_from_birth(said, session)}
        return _find_copies([*theirs, *ours], ROTATION_WRITE_SECONDS, len(theirs)) | branched | told

    def from_gone_parent(self, tx: Tx, session: Session, is_branch: bool) -> frozenset[int]:
        """Return the ids of messages that a session has from a deleted parent: those older than the session or written
        as it began. Without `is_branch`, it has a parent if it begins with a summary, or with older messages that
        newer ones follow."""
        own = self.said(tx, session.id)
        early = [said for said in own if _is_from_birth(said, session)]
        if not (is_branch or any(SUMMARY.match(said.text) for said in early)):
            early = list(takewhile(lambda said: said.time < session.started_at, own))
            if len(early) == len(own):  # nothing newer: its start time is wrong
                early = []
        return frozenset(said.id for said in early)


def _is_from_birth(said: SaidRow, session: Session) -> bool:
    return said.time <= session.started_at + ROTATION_WRITE_SECONDS


def _find_copies(said: Sequence[SaidRow], moment: float = COMPRESSION_WRITE_SECONDS, first: int = 0) -> frozenset[int]:
    """Return the ids of rows beside a summary that repeat an earlier row and were written with the summary, within
    `moment` seconds. Only summaries from place `first` on count."""
    found: set[int] = set()
    for place in range(first, len(said)):
        if SUMMARY.match(said[place].text):
            found |= _beside(said, place, moment)
    return frozenset(found)


def _beside(said: Sequence[SaidRow], place: int, moment: float) -> set[int]:
    """Return the copies of one compression: its first messages end right above the summary, its last ones begin right
    below."""
    for first in range(min(place // 2, MAX_KEPT_ROWS), -1, -1):
        head, rest = said[place - first : place], said[: place - first]
        if [row.wording for row in head] != [row.wording for row in said[:first]]:
            continue
        last = _length_below(said, place, rest)
        pairs = [*zip(said[:first], head, strict=True), *zip(rest[len(rest) - last :], said[place + 1 :], strict=False)]
        if (first or last) and _written_at_once(said[place], pairs, moment):
            return {copy.id for _, copy in pairs}
    return set()


def _length_below(said: Sequence[SaidRow], place: int, rest: Sequence[SaidRow]) -> int:
    """Return how many rows below the summary repeat the last rows above what the compression wrote."""
    below = said[place + 1 : place + 1 + MAX_KEPT_ROWS]
    merged = MERGED in said[place].text
    for length in range(min(len(below), len(rest)), 0, -1):
        if below[length - 1].wording != rest[-1].wording:
            continue
        if [row.wording for row in below[:length]] != [row.wording for row in rest[-length:]]:
            continue
        if not merged or (length < len(rest) and rest[-length - 1].text.strip() in said[place].text):
            return length
    return 0


def _written_at_once(summary: SaidRow, pairs: Sequence[tuple[SaidRow, SaidRow]], moment: float) -> bool:
    """Return True if every copy has the time of its original or that of the compression."""
    times = [copy.time for original, copy in pairs if copy.time != original.time]
    if MERGED not in summary.text:  # one that is merged may have the time of what it was merged into
        times.append(summary.time)
    return not times or max(times) - min(times) <= moment
