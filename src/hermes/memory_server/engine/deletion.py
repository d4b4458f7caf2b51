"""Deletion: rows are hidden at once and removed from the file in the background.

Messages are removed one by one, as a range, or as all of a deleted peer. Conclusions that come only from removed
messages are deleted, and summaries that cover them are made again. Jobs that are deriving or summarising at that
moment check again before they store their result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Row, Table, delete, select, text, tuple_, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.sign_in_tables import grants
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import (
    OPEN_JOB,
    answers,
    cards,
    collections,
    conclusion_messages,
    conclusions,
    departures,
    dreams,
    finer_again,
    finer_progress,
    jobs,
    memberships,
    merge_rows,
    merges,
    message_vectors,
    messages,
    model_calls,
    peers,
    scope_sessions,
    sessions,
    summaries,
    tombstones,
    webhooks,
    workspaces,
)
from hermes.memory_server.engine.answers import forget_session_answers
from hermes.memory_server.engine.conclusions import drop_conclusions, message_ids, remove_conclusions, trim_card
from hermes.memory_server.engine.departures import begin_generation, note_departed
from hermes.memory_server.engine.finer import forget_in_finer
from hermes.memory_server.engine.grants import end_grants
from hermes.memory_server.engine.job_kinds import MessageRemovalJob, SessionDeletionJob, WorkspaceDeletionJob
from hermes.memory_server.engine.jobs import add_job, drop_jobs
from hermes.memory_server.engine.messages import forget_facts, get_message, requeue_summaries
from hermes.memory_server.engine.sessions import lock_session
from hermes.memory_server.engine.tidying import queue_tidying
from hermes.memory_server.engine.truth import add_tombstones, release
from hermes.memory_server.engine.workspaces import DELETED, lock_workspace
from hermes.memory_server.faults import Conflict, Invalid

ROWS_PER_TRANSACTION = 50
"""The number of rows that one transaction removes. Small, because other writers wait meanwhile."""


def delete_session(tx: Tx, workspace: str, name: str, at: int) -> None:
    """Hide the session and everything that came from it at once, and queue its removal."""
    session = lock_session(tx, workspace, name)
    tx.execute(update(sessions).where(sessions.c.id == session.id).values(is_active=False))
    _drop_jobs_in(tx, session)
    forget_session_answers(tx, session.workspace_id, session.name)
    touched = _mark_collections_changed(tx, session.id)
    tx.execute(update(conclusions).where(conclusions.c.session_id == session.id).values(deleted_at=at))
    release(tx, list(tx.execute(select(conclusions.c.id).where(conclusions.c.session_id == session.id)).scalars()), at)
    for collection_id in touched:
        trim_card(tx, collection_id)
    unit = f"deletion:{session.workspace_id}"
    add_job(tx, SessionDeletionJob(session.id), unit, at, session.workspace_id)


def delete_workspace(tx: Tx, name: str, at: int) -> None:
    """Free the name at once and queue the removal. Raise Conflict while a session is active."""
    place = lock_workspace(tx, name)
    alive = select(sessions.c.id).where(sessions.c.workspace_id == place.id, sessions.c.is_active.is_(True)).limit(1)
    if tx.execute(alive).first() is not None:
        raise Conflict(f"Workspace {name} has active sessions: delete all sessions first")
    end_grants(tx, grants.c.workspace_id == place.id)
    freed = f"{name}{DELETED}{place.uid}"
    tx.execute(update(workspaces).where(workspaces.c.id == place.id).values(name=freed))
    add_job(tx, WorkspaceDeletionJob(), f"deletion:{place.id}", at, place.id)


def purge_session(tx: Tx, session_id: int, at: int) -> bool:
    """Remove a part of a session and of everything that came from it. Return True if more is left."""
    row = tx.execute(select(sessions).where(sessions.c.id == session_id)).first()
    if row is None:
        return False
    if _purge_first_messages(tx, row):
        return True
    _mark_collections_changed(tx, session_id)
    if purge_conclusions(tx, conclusions.c.session_id == session_id, at):
        return True
    if _purge_rows(tx, answers, answers.c.workspace_id == row.workspace_id, answers.c.session_id == session_id):
        return True
    for table in (memberships, summaries, scope_sessions):
        if _purge_rows(tx, table, table.c.session_id == session_id):
            return True
    _drop_jobs_in(tx, row)
    tx.execute(delete(sessions).where(sessions.c.id == session_id))
    begin_generation(tx, row.workspace_id)
    queue_tidying(tx, at)
    return False


def _purge_first_messages(tx: Tx, session: Row[Any]) -> bool:
    """Remove the session's first messages, with their index entries. Return True if more are left."""
    query = (
        select(messages).where(messages.c.session_id == session.id).order_by(messages.c.seq).limit(ROWS_PER_TRANSACTION)
    )
    rows = tx.execute(query).all()
    if rows:
        text_index(tx).remove_part(tx, session.id, rows[0].seq, rows[-1].seq)
        drop_messages(tx, rows)
    return len(rows) == ROWS_PER_TRANSACTION


def drop_messages(tx: Tx, rows: Sequence[Row[Any]]) -> None:
    """Remove messages of one workspace that are already out of the text index."""
    ids = [row.id for row in rows]
    for row in rows:
        forget_facts(tx, row.workspace_id, row.id, row.metadata)
    forget_in_finer(tx, rows)
    note_departed(tx, rows[0].workspace_id, ids)
    in_workspace = message_vectors.c.workspace_id == rows[0].workspace_id
    tx.execute(delete(message_vectors).where(in_workspace, message_vectors.c.message_id.in_(ids)))
    tx.execute(delete(conclusion_messages).where(conclusion_messages.c.message_id.in_(ids)))
    tx.execute(delete(messages).where(messages.c.id.in_(ids)))


def purge_conclusions(tx: Tx, which: ColumnElement[bool], at: int) -> bool:
    """Remove some conclusions. Return True if more are left."""
    ids = [row.id for row in tx.execute(select(conclusions.c.id).where(which).limit(ROWS_PER_TRANSACTION))]
    drop_conclusions(tx, ids, at)
    return len(ids) == ROWS_PER_TRANSACTION


def _purge_rows(tx: Tx, table: Table, *which: ColumnElement[bool]) -> bool:
    """Remove some rows of a table. Return True if more are left."""
    some = select(*table.primary_key).where(*which).limit(ROWS_PER_TRANSACTION)
    return tx.execute(delete(table).where(tuple_(*table.primary_key).in_(some))).rowcount == ROWS_PER_TRANSACTION


def purge_workspace(tx: Tx, workspace_id: int, at: int) -> bool:
    """Remove a part of a workspace and of everything in it. Return True if more is left."""
    inside = select(sessions.c.id).where(sessions.c.workspace_id == workspace_id).limit(1)
    while (first := tx.execute(inside).scalar_one_or_none()) is not None:
        if purge_session(tx, first, at):
            return True
    if purge_conclusions(tx, conclusions.c.workspace_id == workspace_id, at):
        return True
    held = select(collections.c.id).where(collections.c.workspace_id == workspace_id).scalar_subquery()
    tx.execute(delete(cards).where(cards.c.collection_id.in_(held)))
    merged = select(merges.c.id).where(merges.c.workspace_id == workspace_id)
    if _purge_rows(tx, merge_rows, merge_rows.c.merge_id.in_(merged)):
        return True
    owned = (answers, collections, webhooks, merges, peers, finer_progress, finer_again, departures, tombstones)
    for table in (*owned, model_calls, dreams):
        if _purge_rows(tx, table, table.c.workspace_id == workspace_id):
            return True
    drop_jobs(tx, jobs.c.workspace_id == workspace_id, jobs.c.kind != WorkspaceDeletionJob.kind)
    tx.execute(delete(workspaces).where(workspaces.c.id == workspace_id))
    queue_tidying(tx, at)
    return False


def _mark_collections_changed(tx: Tx, session_id: int) -> list[int]:
    """Mark the collections of the session's conclusions as changed, so that cached vectors are read again. Return
    their ids.
    """
    touched = select(conclusions.c.collection_id).where(conclusions.c.session_id == session_id).distinct()
    tx.execute(update(collections).where(collections.c.id.in_(touched)).values(generation=collections.c.generation + 1))
    return list(tx.execute(touched).scalars())


def _drop_jobs_in(tx: Tx, session: Row[Any]) -> None:
    drop_jobs(tx, jobs.c.workspace_id == session.workspace_id, jobs.c.session_id == session.id)


MAX_REMOVED_MESSAGES = 10_000
"""The number of messages that one request removes."""
REMOVAL_TIMEOUT_MICROSECONDS = 60 * 1_000_000
"""The time after which a worker removes the rest of a range, in case the request was interrupted."""


def begin_removal(tx: Tx, workspace: str, session: str, first: str, last: str, at: int) -> MessageRemovalJob:
    """Begin to remove all messages from one to another, both included. A worker finishes it if the request is
    interrupted.
    """
    row = lock_session(tx, workspace, session)
    numbers = [get_message(tx, workspace, session, public_id).seq for public_id in (first, last)]
    if numbers[0] > numbers[1]:
        raise Invalid("first must not come after last")
    if numbers[1] - numbers[0] >= MAX_REMOVED_MESSAGES:
        raise Invalid(f"At most {MAX_REMOVED_MESSAGES} messages can be deleted at once")
    removal = MessageRemovalJob(row.id, *numbers)
    add_job(tx, removal, removal.unit, at, row.workspace_id, not_before=at + REMOVAL_TIMEOUT_MICROSECONDS)
    return removal


def remove_part(tx: Tx, removal: MessageRemovalJob, at: int) -> int:
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
