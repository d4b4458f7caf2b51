"""Copies: messages that another version's compression in place wrote once more beside its summary.

Such a compression marks every live row as compacted and writes anew what stays: the first messages, its summary, and
the last ones. A copy has what its original says and either the original's time or that of the summary, to the fraction
of a second; nobody says the same again at such a moment, so what only looks alike is no copy.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct

from hermes.db.engine import Tx
from hermes.store.incognito import Range, is_hidden
from hermes.store.schema import TableShape, as_text, as_time, kept_rows
from hermes.types import Session

SUMMARY = re.compile(r"\A\s*\[(CONTEXT COMPACTION|CONTEXT SUMMARY\]:|PRIOR CONTEXT —)")
"""How other versions begin a summary that they store as a message, alone or merged into the first that they keep."""
MERGED = "PRIOR CONTEXT —"
"""What a summary that was merged has around the message."""
LONGEST = 500
"""How many rows a compression keeps before its summary, and after it, at most."""
REMARK = "session_meta"
"""The role of rows in which other versions keep how a session was set up."""
MOMENT = 0.05
"""Seconds in which one compression writes its rows."""
ROTATION = 5.0
"""A compression that moves a conversation to another session writes all rows there within so many seconds."""


class SaidRow(Struct, frozen=True):
    """A message, as far as copies are told by it."""

    id: int
    time: float
    text: str
    wording: tuple[object, ...]
    """What two rows that say the same have in common. A tool's result, whose text may be cut, is known by its call."""

    @classmethod
    def read(cls, row: sqlite3.Row) -> SaidRow:
        text = as_text(row["content"]) or ""
        answers = row["role"] == "tool" and row["call_id"]
        wording = ("tool", row["call_id"]) if answers else (row["role"], text.strip(), row["calls"])
        return cls(row["id"], as_time(row["timestamp"]), text, wording)


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
        return _find_copies(self.said(tx, session_id))

    def said(self, tx: Tx, session_id: str) -> list[SaidRow]:
        """What was said in a session, in order."""
        return [SaidRow.read(row) for row in tx.execute(self._select, (session_id,))]

    def from_parent(
        self, tx: Tx, session: Session, theirs: Sequence[SaidRow], hidden: Sequence[Range]
    ) -> frozenset[int]:
        """The ids of what a session has of what its parent said: beside the summary of a rotation, or up to where it
        was branched off; and of the parent's `hidden` messages also what else was written as the session began."""
        ours = self.said(tx, session.id)
        pairs = zip(theirs, ours, strict=False)
        branched = {copy.id for _, copy in takewhile(lambda pair: pair[0].wording == pair[1].wording, pairs)}
        secret = {said.wording for said in theirs if is_hidden(hidden, said.id)}
        told = {said.id for said in ours if said.wording in secret and _is_from_birth(said, session)}
        return _find_copies([*theirs, *ours], ROTATION, len(theirs)) | branched | told

    def from_gone_parent(self, tx: Tx, session: Session, is_branch: bool) -> frozenset[int]:
        """The ids of what a session has from a parent that was deleted: all that is older than the session or was
        written as it began. One that is no branch had a parent if it begins with a summary, or with what is older and
        goes on after that."""
        own = self.said(tx, session.id)
        early = [said for said in own if _is_from_birth(said, session)]
        if not (is_branch or any(SUMMARY.match(said.text) for said in early)):
            early = list(takewhile(lambda said: said.time < session.started_at, own))
            if len(early) == len(own):  # nothing was said since: its own beginning is told wrongly
                early = []
        return frozenset(said.id for said in early)


def _is_from_birth(said: SaidRow, session: Session) -> bool:
    return said.time <= session.started_at + ROTATION


def _find_copies(said: Sequence[SaidRow], moment: float = MOMENT, first: int = 0) -> frozenset[int]:
    """Which of what was said repeats something earlier beside a summary, at place `first` or after it, that was written
    with it within a moment."""
    found: set[int] = set()
    for place in range(first, len(said)):
        if SUMMARY.match(said[place].text):
            found |= _beside(said, place, moment)
    return frozenset(found)


def _beside(said: Sequence[SaidRow], place: int, moment: float) -> set[int]:
    """The copies of one compression: the first messages right above its summary, the last ones right below."""
    for first in range(min(place // 2, LONGEST), -1, -1):
        head, rest = said[place - first : place], said[: place - first]
        if [row.wording for row in head] != [row.wording for row in said[:first]]:
            continue
        last = _length_below(said, place, rest)
        pairs = [*zip(said[:first], head, strict=True), *zip(rest[len(rest) - last :], said[place + 1 :], strict=False)]
        if (first or last) and _written_at_once(said[place], pairs, moment):
            return {copy.id for _, copy in pairs}
    return set()


def _length_below(said: Sequence[SaidRow], place: int, rest: Sequence[SaidRow]) -> int:
    """How many rows below the summary are the last ones above what the compression wrote."""
    below = said[place + 1 : place + 1 + LONGEST]
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
    """Whether every copy has the time of its original or that of the compression."""
    times = [copy.time for original, copy in pairs if copy.time != original.time]
    if MERGED not in summary.text:  # one that is merged may have the time of what it was merged into
        times.append(summary.time)
    return not times or max(times) - min(times) <= moment
