"""The read-only audit of one profile: its log and its store.

Messages that a compression did not see: another process wrote them meanwhile, or later into the ended session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hermes.audit.bindings import find_bindings, find_history, find_losses
from hermes.audit.case import COMPRESSION_FILL_SECONDS, Case, SaidMessage, read_case, read_messages, routes_of
from hermes.audit.crossing import Crossing, find_crossed, find_crossings
from hermes.audit.damage import AuditNotice, Damage
from hermes.audit.doubles import find_doubles
from hermes.audit.log import LogAudit
from hermes.db.engine import Tx
from hermes.home import Home
from hermes.store.health import lend_tables, open_unchanged
from hermes.store.schema import TableShape, kept_rows, read_shape

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
