"""The read-only audit of one profile: its log and its store.

Messages that a compression did not see: another process wrote them meanwhile, or later into the ended session.

Duplicates that an older version wrote: of a whole conversation, or of a summary.

A compression by rotation may write the transcript again before it ends the session. If it is killed there, or the
session is used on under its old id, the session has all messages twice. The copies begin with the session's first
message and follow it in order, and a person's messages keep their time to the fraction of a second. Only that, or the
same summary in both, counts as a copy; a message that a person repeats does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hermes.audit.bindings import find_bindings, find_history, find_losses
from hermes.audit.case import COMPRESSION_FILL_SECONDS, Case, SaidMessage, read_case, read_messages, routes_of
from hermes.audit.crossing import Crossing, find_crossed, find_crossings
from hermes.audit.damage import AuditNotice, Damage, Hide
from hermes.audit.log import LogAudit
from hermes.db.engine import Tx
from hermes.home import Home
from hermes.store.health import lend_tables, open_unchanged
from hermes.store.schema import TableShape, kept_rows, live_rows, read_shape

MAX_NAMED_MESSAGES = 10
"""Number of messages that a notice lists one by one."""


def find_unseen(tx: Tx, case: Case, damage: Iterable[Damage]) -> Iterator[AuditNotice]:
    """Yield messages that compressions missed, except in damaged sessions, which are judged after the repair.

    A compression copies the end of a conversation unchanged. A person's message after the first copied one that is not
    among the copies was written after the compression had read the session.
    """
    named = {session for found in damage for session in found.sessions}
    moved = {
        session.id: following.id
        for session in case.sessions.values()
        if (following := case.next_continuation(session)) is not None
    }
    pairs = {(before, today) for before, today in moved.items() if named.isdisjoint((before, today))}
    _, shape = read_shape(tx)
    pairs |= {(session, session) for session in _compacted(tx, shape) - named}
    rows = read_messages(tx, shape, {session for pair in pairs for session in pair}, kept_rows(shape)) if pairs else {}
    for before, today in sorted(pairs):
        own = [row for row in rows.get(before, []) if row.is_live is (before != today)]
        new = [row for row in rows.get(today, []) if row.is_live]
        began = case.sessions[today].started_at if before != today else max((row.time for row in own), default=0.0)
        missing = _missing(own, new, began + COMPRESSION_FILL_SECONDS)
        if missing and (left := _not_contained(tx, missing, new)):
            yield _describe(before, today, left)


def _describe(before: str, today: str, message_ids: Sequence[int]) -> AuditNotice:
    """Return the notice. `today` is the session that continues the conversation, equal to `before` if it was compacted
    in place."""
    numbers = ", ".join(map(str, message_ids[:MAX_NAMED_MESSAGES])) + (
        ", …" if len(message_ids) > MAX_NAMED_MESSAGES else ""
    )
    moved = f"moved it on to {today}, or later" if today != before else "was at work"
    detail = f"what a person said in {before} while a compression {moved}, is not seen by the model: message {numbers}"
    fix = f"Say it again if it matters; `hermes sessions show {before}` shows it"
    return AuditNotice("left-behind", tuple(dict.fromkeys((before, today))), detail, fix)


def _missing(own: Sequence[SaidMessage], new: Sequence[SaidMessage], born: float) -> list[int]:
    if not new:
        return []
    seen = {row.wording for row in new}
    carried = _carried(own, new, born)
    since = carried[0] if carried else new[0].id
    return [row.id for row in own if row.role == "user" and row.id > since and row.wording not in seen]


def _carried(own: Sequence[SaidMessage], new: Sequence[SaidMessage], born: float) -> list[int]:
    """Return the messages that a compression copied below its summary, by their ids in the original session."""
    ids = {row.wording: row.id for row in own}
    start = next((place for place, row in enumerate(new) if row.is_summary), len(new))
    found: list[int] = []
    for row in new[start + 1 :]:
        place = ids.get(row.wording)
        if place is None or row.time > born or (found and place <= found[-1]):
            break
        found.append(place)
    return found


def _not_contained(tx: Tx, message_ids: Sequence[int], new: Sequence[SaidMessage]) -> tuple[int, ...]:
    """Return the messages whose text is in no other message: a compression may merge kept messages into a longer
    one."""
    rows = tx.execute(
        "SELECT m.id FROM messages m WHERE m.id IN (SELECT value FROM json_each(:old)) AND NOT EXISTS ("
        "SELECT 1 FROM messages o WHERE o.id IN (SELECT value FROM json_each(:new)) "
        "AND instr(o.content, trim(m.content)) > 0) ORDER BY m.id",
        {"old": json.dumps(message_ids), "new": json.dumps([row.id for row in new])},
    )
    return tuple(row["id"] for row in rows)


def _compacted(tx: Tx, shape: TableShape) -> set[str]:
    """Return the sessions that were compacted in place."""
    if "compacted" not in shape.columns:
        return set()
    rows = tx.execute("SELECT DISTINCT session_id FROM messages WHERE compacted = 1 AND typeof(session_id) = 'text'")
    return {row["session_id"] for row in rows}


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """The result of an audit: damage that can be repaired, and notices."""

    damage: tuple[Damage, ...] = ()
    notices: tuple[AuditNotice, ...] = ()


def audit_store(home: Home, log: LogAudit, *, lock_timeout: float) -> StoreAudit:
    """Audit the store of a profile, of any version. Raises a StoreError if it cannot be read."""
    with open_unchanged(home.state_file, lock_timeout=lock_timeout) as tx:
        names = {row["name"] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"sessions", "messages"} <= names:
            return StoreAudit()
        lend_tables(tx)
        case = read_case(tx, home.old_routes_file)
        found = find_damage(tx, case, find_crossings(log.operations))
        notices = [*find_losses(case), *find_unseen(tx, case, found)]
        reported = {session for damage in found for session in damage.sessions}
        reported |= {session for notice in notices for session in notice.sessions}
        notices += [*_find_differing(tx, home), *find_history(case, reported)]
        return StoreAudit(tuple(found), tuple(notices))


def find_damage(tx: Tx, case: Case, crossings: Iterable[Crossing]) -> list[Damage]:
    """Return every damage in the order of repair: first whose messages these are, then where they belong."""
    return [
        *find_crossed(tx, case, crossings),
        *find_doubles(tx, case),
        *find_bindings(case),
    ]


def _find_differing(tx: Tx, home: Home) -> Iterator[AuditNotice]:
    """Yield keys that lead to one session here and to another in another version."""
    for key, (ours, theirs) in sorted(routes_of(tx, home.old_routes_file).differing(tx).items()):
        detail = f"{key} leads to {ours} here and to {theirs} in the other hermes of this home"
        fix = "What was bound last counts here; say something in that chat with the one that you mean to use"
        yield AuditNotice("routes-differ", (ours, theirs), detail, fix)


MIN_COPIED_TEXT_CHARS = 200
"""Length from which a compression's text cannot be written twice in the same second by chance."""
SAME_MOMENT_SECONDS = 1.0
MAX_SKIPPED_ROWS = 3
"""Maximum number of other rows within a copied conversation, for example two messages that became one."""


def find_doubles(tx: Tx, case: Case) -> Iterator[Damage]:
    """Yield every session that shows a conversation or a summary twice. The first copy stays."""
    if not case.has_older_traces:
        return  # we never store a summary as a message, nor a message twice
    _, shape = read_shape(tx)
    births = {
        child.id: child.started_at + COMPRESSION_FILL_SECONDS
        for child in case.with_parents
        if case.parent(child) is not None
    }
    compacted = _last_compacted(tx, shape)
    compressed = births.keys() | compacted.keys()
    rows = read_messages(tx, shape, compressed | _with_equal_times(tx, shape), live_rows(shape))
    for session_id in sorted(rows):
        own = rows[session_id]
        again = find_again(own, is_compressed=session_id in compressed)
        rest = [row for row in own if row.id not in again]
        written = find_written_twice(rest, births.get(session_id), compacted.get(session_id))
        yield from _describe_double(session_id, sorted(again), written)


def find_again(rows: Sequence[SaidMessage], *, is_compressed: bool) -> set[int]:
    """Return the rows that repeat the session from its beginning."""
    found: set[int] = set()
    place = 1
    while place < len(rows):
        length = _length_of_repeat(rows, place) if rows[place].repeats(rows[0]) else 0
        if not _is_written_again(rows, place, length, is_compressed=is_compressed):
            place += 1
            continue
        found |= {row.id for row in rows[place : place + length]}
        place = _resume(rows, place + length, found)
    return found


def _length_of_repeat(rows: Sequence[SaidMessage], place: int) -> int:
    length = 0
    while length < place and place + length < len(rows) and rows[place + length].repeats(rows[length]):
        length += 1
    return length


def _is_written_again(rows: Sequence[SaidMessage], place: int, length: int, *, is_compressed: bool) -> bool:
    pairs = list(zip(rows[:length], rows[place : place + length], strict=True))
    if length < 2 or all(row.role == "user" and not row.is_summary for row, _ in pairs):
        return False
    same_time = any(row.role == "user" and row.time == copy.time for row, copy in pairs)
    return same_time or (is_compressed and any(row.is_summary for row, _ in pairs))


def _resume(rows: Sequence[SaidMessage], place: int, found: set[int]) -> int:
    """Continue after a row that is not copied, while later rows have the text and time of an earlier one."""
    earlier = {(row.wording, row.signs, row.time) for row in rows[:place] if row.id not in found}
    skipped = 0
    for here in range(place, len(rows)):
        row = rows[here]
        if (row.wording, row.signs, row.time) in earlier:
            found.add(row.id)
            place, skipped = here + 1, 0
        else:
            skipped += 1
            if skipped > MAX_SKIPPED_ROWS:
                break
    return place


def find_written_twice(
    rows: Sequence[SaidMessage], born_until: float | None, last_compacted: int | None
) -> list[SaidMessage]:
    """Return all but the first copy of each long text that a compression wrote.

    These are in a child's first moments, or directly after the compacted messages, before a person's next message. Only
    the first summary may be copied a while later: a repeated text that begins like a summary may be a person's
    quotation.
    """
    found: list[SaidMessage] = []
    opening: SaidMessage | None = None
    first: dict[int, SaidMessage] = {}
    for row in rows:
        born = born_until is not None and row.time <= born_until
        fresh = born or (last_compacted is not None and row.id > last_compacted)
        if fresh and not born and row.role == "user" and not row.is_summary:
            break  # from here on people speak
        if not fresh or row.signs or not (row.is_summary or row.length >= MIN_COPIED_TEXT_CHARS):
            continue
        opening = opening or (row if row.is_summary else None)
        before = first.setdefault(row.wording, row)
        limit = (
            COMPRESSION_FILL_SECONDS if opening is not None and row.wording == opening.wording else SAME_MOMENT_SECONDS
        )
        if before is not row and abs(row.time - before.time) < limit:
            found.append(row)
    return found


def _describe_double(session_id: str, again: Sequence[int], written: Sequence[SaidMessage]) -> Iterator[Damage]:
    if again:
        detail = (
            f"session {session_id} holds {len(again)} of its messages twice: a compression wrote the conversation once "
            "more. The model reads it twice, and so does whoever opens it; nothing is missing"
        )
        yield Damage("double-rows", (session_id,), detail, (Hide(tuple(again)),))
    if summaries := tuple(row.id for row in written if row.is_summary or row.role != "user"):
        detail = (
            f"session {session_id} holds one summary {_times(summaries)}: the model reads the same past again and again"
        )
        yield Damage("double-summary", (session_id,), detail, (Hide(summaries),))
    if messages := tuple(row.id for row in written if not row.is_summary and row.role == "user"):
        detail = f"session {session_id} holds one message {_times(messages)}: a compression wrote it again"
        yield Damage("double-rows", (session_id,), detail, (Hide(messages),))


def _times(copies: Sequence[int]) -> str:
    return "once more" if len(copies) == 1 else f"{len(copies)} more times"


def _with_equal_times(tx: Tx, shape: TableShape) -> set[str]:
    """Return the sessions in which a person's messages have equal times."""
    rows = tx.execute(
        f"SELECT t.session_id FROM messages t WHERE t.role = 'user' AND {live_rows(shape)} "
        "GROUP BY t.session_id, t.timestamp HAVING count(*) > 1"
    )
    return {str(row["session_id"]) for row in rows}


def _last_compacted(tx: Tx, shape: TableShape) -> Mapping[str, int]:
    if not {"active", "compacted"} <= shape.columns:
        return {}
    rows = tx.execute(
        "SELECT session_id, max(id) AS newest FROM messages WHERE compacted = 1 AND active = 0 GROUP BY session_id"
    )
    return {row["session_id"]: row["newest"] for row in rows}
