"""Crossed compressions, which worked on the wrong conversation: hides their rows and restores removed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hermes.audit.case import COMPRESSION_FILL_SECONDS, MAX_ROTATION_SECONDS, Case
from hermes.audit.damage import Bind, Damage, Detach, Hide, Reopen, RepairStep, Restore
from hermes.audit.log import DONE, Operation
from hermes.db.engine import Tx
from hermes.store.copies import SUMMARY
from hermes.store.hidden import MENDED_IDS
from hermes.store.schema import TableShape, as_text, kept_rows, live_rows, read_shape
from hermes.types import Session

LOG_TOLERANCE_SECONDS = 5.0
"""Longest time between a log line and its rows in the store."""
MIN_COPY_CHARS = 20
"""Length from which equal text in two conversations counts as a copy, not as a coincidence."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A compression of one session by the task of another, from the log."""

    session_id: str
    by_id: str
    ended: float
    own_started: float | None
    """When the session's own previous compression began, if the log has it."""
    own_later: bool
    """True if the session compressed itself again since: that compression decides what the model reads."""


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A message from another session: a copy of one there, or a summary."""

    id: int
    is_copy: bool
    is_live: bool


def find_crossings(operations: Iterable[Operation]) -> list[Crossing]:
    """Return the finished crossed compressions that cannot be mistaken for the session's own."""
    done = [found for found in operations if found.end is not None and found.end.event == DONE]
    crossings = []
    for operation in (found for found in done if found.crossed and not found.moved):
        start, end = operation.start, operation.end
        assert end is not None
        own = [found for found in done if not found.crossed and found.start.session_id == start.session_id]
        ends = [found.end.time for found in own if found.end is not None]
        if any(start.time <= time <= end.time + LOG_TOLERANCE_SECONDS for time in ends):
            continue
        before = [found.start.time for found in own if found.end is not None and found.end.time <= start.time]
        own_later = any(time > end.time + LOG_TOLERANCE_SECONDS for time in ends)
        crossings.append(Crossing(start.session_id, start.bracket, end.time, max(before, default=None), own_later))
    return crossings


def find_crossed(tx: Tx, case: Case, crossings: Iterable[Crossing]) -> Iterator[Damage]:
    """Yield children that were created for another conversation than their parent's, and the traces of crossings in the
    store."""
    _, shape = read_shape(tx)
    for child in sorted(case.with_parents, key=lambda session: session.id):
        parent = case.parent(child)
        if parent is None or not case.are_strangers(parent, child):
            continue
        if parent.ended_at is None or child.started_at - parent.ended_at <= MAX_ROTATION_SECONDS:
            yield _separate(tx, case, shape, parent, child)
    for crossing in crossings:
        if crossing.session_id in case.sessions and (damage := _undo(tx, shape, crossing)) is not None:
            yield damage


def _separate(tx: Tx, case: Case, shape: TableShape, parent: Session, child: Session) -> Damage:
    foreign = _foreign_rows(tx, shape, child.id, parent.id, (0.0, child.started_at + COMPRESSION_FILL_SECONDS))
    live = tuple(row.id for row in foreign if row.is_live)
    steps: list[RepairStep] = [Hide(live)] if live else []
    key = _key_of(case, parent, child)
    if case.children(parent) or (key is not None and case.routes.get(key, child.id) not in (parent.id, child.id)):
        steps.append(Detach(child.id))
    else:
        steps.append(Reopen(parent.id))
        if key is not None and case.routes.get(key) != parent.id:
            steps.append(Bind(key, parent.id))
    detail = (
        f"a compression of session {parent.id} went on as {child.id}, which belongs to another conversation: "
        "there someone's model reads what was said elsewhere, and here the conversation broke off"
    )
    return Damage("cross-session", (parent.id, child.id), detail, tuple(steps))


def _key_of(case: Case, parent: Session, child: Session) -> str | None:
    """Return the parent's own key: from the file, or a key of the child that ends in the parent's person."""
    if parent.session_key is not None:
        return parent.session_key
    taken = [key for key in case.keys_of(child) if parent.user_id and key.endswith(f":{parent.user_id}")]
    return taken[0] if taken else None


def _undo(tx: Tx, shape: TableShape, crossing: Crossing) -> Damage | None:
    """Return the repair of a crossing: foreign messages are hidden, and removed ones are restored unless the session's
    own compression has processed them since. A repair never shows a message in a session where it was not written."""
    window = (crossing.ended - LOG_TOLERANCE_SECONDS, crossing.ended + LOG_TOLERANCE_SECONDS)
    foreign = _foreign_rows(tx, shape, crossing.session_id, crossing.by_id, window)
    decided = crossing.own_later or any(not row.is_live for row in foreign)
    missing = () if decided else _wrongly_compacted(tx, shape, crossing, {row.id for row in foreign})
    # A summary whose originals are gone is all that is left of them: it stays.
    hidden = tuple(row.id for row in foreign if row.is_copy or missing or decided)
    steps: list[RepairStep] = [Restore(missing)] if missing else []
    steps += [Hide(hidden)] if hidden else []
    if not steps:
        return None
    lost = "messages of its own are missing from what its model reads, and " if missing else ""
    detail = (
        f"session {crossing.session_id} was compressed by the task of session {crossing.by_id}: "
        f"{lost}what stands there instead is not its own"
    )
    return Damage("cross-session", (crossing.session_id, crossing.by_id), detail, tuple(steps))


def _foreign_rows(
    tx: Tx, shape: TableShape, session_id: str, origin_id: str, window: tuple[float, float]
) -> list[ForeignMessage]:
    """Return the messages of a session, within `window`, that are copies from `origin_id` or summaries, in order."""
    live = live_rows(shape)
    rows = tx.execute(
        f"""
        SELECT t.id, t.content, {live} AS live, length(t.content) >= {MIN_COPY_CHARS} AND EXISTS (
            SELECT 1 FROM messages o WHERE o.session_id = :origin AND o.role = t.role AND o.content = t.content
        ) AS copied
        FROM messages t WHERE t.session_id = :session AND t.timestamp BETWEEN :first AND :last AND {kept_rows(shape)}
        AND t.id NOT IN ({MENDED_IDS}) ORDER BY t.id
        """,
        {"session": session_id, "origin": origin_id, "first": window[0], "last": window[1]},
    )
    return [
        ForeignMessage(row["id"], bool(row["copied"]), bool(row["live"]))
        for row in rows
        if row["copied"] or SUMMARY.match(as_text(row["content"]) or "")
    ]


def _wrongly_compacted(tx: Tx, shape: TableShape, crossing: Crossing, foreign: set[int]) -> tuple[int, ...]:
    """Return the messages that the crossed compression removed: those since the session's own previous compression."""
    if not {"active", "compacted"} <= shape.columns:
        return ()
    rows = tx.execute(
        "SELECT id FROM messages WHERE session_id = ? AND id >= ? AND timestamp <= ? AND active = 0 AND compacted = 1 "
        f"AND id NOT IN ({MENDED_IDS}) ORDER BY id",
        (crossing.session_id, _first_after_own(tx, crossing), crossing.ended),
    )
    return tuple(row["id"] for row in rows if row["id"] not in foreign)


def _first_after_own(tx: Tx, crossing: Crossing) -> int:
    """Return the first message that the session's own compression kept or wrote, such as its summary."""
    if crossing.own_started is not None:
        row = tx.execute(
            "SELECT min(id) FROM messages WHERE session_id = ? AND timestamp >= ?",
            (crossing.session_id, crossing.own_started),
        ).fetchone()
        return int(row[0] or 0)
    rows = tx.execute(
        "SELECT id, substr(content, 1, 64) AS opening FROM messages "
        "WHERE session_id = ? AND timestamp < ? AND active = 0 AND compacted = 1 ORDER BY id DESC",
        (crossing.session_id, crossing.ended - LOG_TOLERANCE_SECONDS),
    )
    return next((int(row["id"]) for row in rows if SUMMARY.match(as_text(row["opening"]) or "")), 0)
