"""Removal of messages from a session: a message, a range, or all messages of a deleted peer.

Conclusions that come only from removed messages are deleted, and summaries that cover them are made again. Jobs that
are deriving or summarising at that moment check again before they store their result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from sqlalchemy import delete, select, text, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import (
    OPEN_JOB,
    conclusion_messages,
    conclusions,
    jobs,
    messages,
    sessions,
    summaries,
)
from hermes.memory_server.engine.conclusions import message_ids, remove_conclusions
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION, drop_messages
from hermes.memory_server.engine.departures import begin_generation
from hermes.memory_server.engine.job_kinds import MessageRemoval
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.messages import get_message, requeue_summaries
from hermes.memory_server.engine.sessions import lock_session
from hermes.memory_server.engine.tidying import queue_tidying
from hermes.memory_server.engine.truth import add_tombstones
from hermes.memory_server.faults import Invalid

MAX_REMOVED_MESSAGES = 10_000
"""The number of messages that one request removes."""
REMOVAL_TIMEOUT_MICROSECONDS = 60 * 1_000_000
"""The time after which a worker removes the rest of a range, in case the request was interrupted."""


def begin_removal(tx: Tx, workspace: str, session: str, first: str, last: str, at: int) -> MessageRemoval:
    """Begin to remove all messages from one to another, both included. A worker finishes it if the request is
    interrupted.
    """
    row = lock_session(tx, workspace, session)
    numbers = [get_message(tx, workspace, session, public_id).seq for public_id in (first, last)]
    if numbers[0] > numbers[1]:
        raise Invalid("first must not come after last")
    if numbers[1] - numbers[0] >= MAX_REMOVED_MESSAGES:
        raise Invalid(f"At most {MAX_REMOVED_MESSAGES} messages can be deleted at once")
    removal = MessageRemoval(row.id, *numbers)
    add_job(tx, removal, removal.unit, at, row.workspace_id, not_before=at + REMOVAL_TIMEOUT_MICROSECONDS)
    return removal


def remove_part(tx: Tx, removal: MessageRemoval, at: int) -> int:
    """Remove a part of a range, and return the number of messages removed. The last part ends the removal."""
    inside = (messages.c.session_id == removal.session, messages.c.seq.between(removal.first, removal.last))
    rows = tx.execute(select(messages).where(*inside).order_by(messages.c.seq).limit(ROWS_PER_TRANSACTION)).all()
    if rows:
        remove_messages(tx, rows, at)
    if len(rows) < ROWS_PER_TRANSACTION:
        tx.execute(delete(jobs).where(jobs.c.unit == removal.unit, text(OPEN_JOB)))
        _end(tx, removal.session, at)
    return len(rows)


def remove_messages(tx: Tx, rows: Sequence[Record], at: int) -> None:
    """Remove messages of one session, given in order, and everything that comes only from them; it is not derived
    again.
    """
    session_id = rows[0].session_id
    # Wait for transactions that learn from these messages, so that their conclusions are removed too.
    own = select(messages.c.id).where(messages.c.id.in_([row.id for row in rows])).order_by(messages.c.id)
    tx.execute(own.with_for_update())
    for first, last in runs([row.seq for row in rows]):
        text_index(tx).remove_part(tx, session_id, first, last)
    _forget_sources(tx, [row.id for row in rows], at)
    drop_messages(tx, rows)
    tx.execute(update(sessions).where(sessions.c.id == session_id).values(removals=sessions.c.removals + 1))
    tx.execute(delete(summaries).where(summaries.c.session_id == session_id, summaries.c.seq >= rows[0].seq))


def _end(tx: Tx, session_id: int, at: int) -> None:
    row = tx.execute(select(sessions).where(sessions.c.id == session_id)).first()
    if row is None:
        return  # the session was deleted meanwhile
    begin_generation(tx, row.workspace_id)
    queue_tidying(tx, at)
    requeue_summaries(tx, row, at)


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return growing numbers as runs without gaps."""
    groups = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return [(run[0], run[-1]) for run in runs]


def _forget_sources(tx: Tx, gone: Sequence[int], at: int) -> None:
    """Remove messages from the sources of conclusions, and delete conclusions without other sources."""
    linked = select(conclusion_messages.c.conclusion_id).where(conclusion_messages.c.message_id.in_(gone))
    empty: dict[int, list[Record]] = {}
    for row in tx.execute(select(conclusions).where(conclusions.c.id.in_(linked))).all():
        sources = {*message_ids(tx, [row.id])}
        left = sources.difference(gone)
        if not left:
            empty.setdefault(row.collection_id, []).append(row)
            continue
        fewer = max(1, row.times_derived - (len(sources) - len(left)))
        tx.execute(update(conclusions).where(conclusions.c.id == row.id).values(times_derived=fewer))
    for collection_id, rows in empty.items():
        add_tombstones(tx, collection_id, [row.content for row in rows], at)
        remove_with_drawn(tx, [row.id for row in rows], collection_id, at)


def remove_with_drawn(tx: Tx, ids: Sequence[int], collection_id: int, at: int) -> None:
    """Delete conclusions of one collection, and drawn conclusions that have no premise left."""
    remove_conclusions(tx, ids, collection_id, at)
    drawn = select(conclusions.c.id, conclusions.c.source_ids).where(
        conclusions.c.collection_id == collection_id, conclusions.c.source_ids.is_not(None)
    )
    baseless = []
    for row in tx.execute(drawn).all():
        sources = json.loads(row.source_ids)
        if sources and not _any_left(tx, sources):
            baseless.append(row.id)
    if baseless:
        remove_with_drawn(tx, baseless, collection_id, at)


def _any_left(tx: Tx, public_ids: Sequence[str]) -> bool:
    queries = (select(conclusions.c.id).where(conclusions.c.public_id.in_(part)) for part in in_parts(public_ids))
    return any(tx.execute(query.limit(1)).first() is not None for query in queries)
