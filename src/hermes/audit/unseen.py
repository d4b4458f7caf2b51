"""Words that a compression did not see: another process wrote them while it was at work, or later in what it ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hermes.audit.activity import BIRTH
from hermes.audit.case import Case
from hermes.audit.damage import Damage
from hermes.db.engine import Tx
from hermes.store.copies import REMARK, SUMMARY
from hermes.store.schema import as_text, kept_rows, live_rows, read_shape


@dataclass(frozen=True, slots=True)
class Unseen:
    """Messages of people in `before` that the model does not see in `today`, where the conversation goes on; that is
    the same session where it was compacted in place."""

    before: str
    today: str
    message_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    role: str
    time: float
    wording: int
    """A hash of who said what, to see whether two messages are the same."""
    is_summary: bool
    is_live: bool


def find_unseen(tx: Tx, case: Case, damage: Iterable[Damage]) -> Iterator[Unseen]:
    """What compressions left behind; sessions that a damage names are judged when it is mended.

    A compression copies the end of a conversation unchanged. What a person said after the first message that it copied,
    and that is not among the copies, had not been written yet when it read the session.
    """
    named = {session for found in damage for session in found.sessions}
    moved = {
        session.id: following.id
        for session in case.sessions.values()
        if (following := case.next_continuation(session)) is not None
    }
    pairs = {(before, today) for before, today in moved.items() if named.isdisjoint((before, today))}
    pairs |= {(session, session) for session in _compacted(tx) - named}
    rows = _read_rows(tx, {session for pair in pairs for session in pair}) if pairs else {}
    for before, today in sorted(pairs):
        own = [row for row in rows.get(before, []) if row.is_live is (before != today)]
        new = [row for row in rows.get(today, []) if row.is_live]
        began = case.sessions[today].started_at if before != today else max((row.time for row in own), default=0.0)
        missing = _missing(own, new, began + BIRTH)
        if missing and (left := _not_contained(tx, missing, new)):
            yield Unseen(before, today, left)


def _missing(own: Sequence[_Row], new: Sequence[_Row], born: float) -> list[int]:
    if not new:
        return []
    seen = {row.wording for row in new}
    carried = _carried(own, new, born)
    since = carried[0] if carried else new[0].id
    return [row.id for row in own if row.role == "user" and row.id > since and row.wording not in seen]


def _carried(own: Sequence[_Row], new: Sequence[_Row], born: float) -> list[int]:
    """The messages that a compression wrote below its summary, as they are numbered where it took them from."""
    ids = {row.wording: row.id for row in own}
    start = next((place for place, row in enumerate(new) if row.is_summary), len(new))
    found: list[int] = []
    for row in new[start + 1 :]:
        place = ids.get(row.wording)
        if place is None or row.time > born or (found and place <= found[-1]):
            break
        found.append(place)
    return found


def _not_contained(tx: Tx, message_ids: Sequence[int], new: Sequence[_Row]) -> tuple[int, ...]:
    """Those whose text stands nowhere in the rest: a compression may merge what it keeps into a longer message."""
    rows = tx.execute(
        "SELECT m.id FROM messages m WHERE m.id IN (SELECT value FROM json_each(:old)) AND NOT EXISTS ("
        "SELECT 1 FROM messages o WHERE o.id IN (SELECT value FROM json_each(:new)) "
        "AND instr(o.content, trim(m.content)) > 0) ORDER BY m.id",
        {"old": json.dumps(message_ids), "new": json.dumps([row.id for row in new])},
    )
    return tuple(row["id"] for row in rows)


def _compacted(tx: Tx) -> set[str]:
    """The sessions that were compacted in place."""
    _, shape = read_shape(tx)
    if "compacted" not in shape.columns:
        return set()
    rows = tx.execute("SELECT DISTINCT session_id FROM messages WHERE compacted = 1 AND typeof(session_id) = 'text'")
    return {row["session_id"] for row in rows}


def _read_rows(tx: Tx, wanted: set[str]) -> Mapping[str, list[_Row]]:
    """What was said in some sessions, in one pass: files of others need not have an index by session."""
    _, shape = read_shape(tx)
    found: dict[str, list[_Row]] = {}
    for row in tx.execute(
        f"SELECT t.session_id, t.id, t.role, CAST(t.timestamp AS REAL) AS time, t.content, {live_rows(shape)} AS live "
        "FROM messages t WHERE t.session_id IN (SELECT value FROM json_each(?)) "
        f"AND t.role <> '{REMARK}' AND {kept_rows(shape)} ORDER BY t.id",
        (json.dumps(sorted(wanted)),),
    ):
        text = (as_text(row["content"]) or "").strip()
        is_summary = SUMMARY.match(text) is not None
        wording = hash((row["role"], text))
        made = _Row(row["id"], row["role"], row["time"] or 0.0, wording, is_summary, bool(row["live"]))
        found.setdefault(row["session_id"], []).append(made)
    return found
