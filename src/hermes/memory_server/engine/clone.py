"""Clones of a session, up to a message: its messages and members, in the same workspace.

begin (a hidden session) ── copy, part by part ── finish (it is shown)

Other writers run in between. A clone that is not finished within an hour is removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import TextClause, delete, insert, select, text, update

from hermes.memory_server.db.catching_up import has_caught_up
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.tables import OPEN_JOB, jobs, memberships, messages, sessions
from hermes.memory_server.engine.job_kinds import SessionDeletionJob
from hermes.memory_server.engine.jobs import add_job
from hermes.memory_server.engine.messages import INSERT, get_message, keep_facts
from hermes.memory_server.engine.sessions import find_session, get_session, insert_session, lock_session
from hermes.memory_server.faults import Conflict, Missing
from hermes.memory_server.ids import new_id

COPIED = ("workspace_id", "peer_id", "seq", "content", "metadata", "token_count", "created_at", "file")
MESSAGES_PER_TRANSACTION = 25
"""The number of messages that one transaction copies."""
CLONE_TIMEOUT_MICROSECONDS = 3600 * 1_000_000
"""The time after which an unfinished clone is removed."""


def _copy_vectors(traits: str) -> TextClause:
    return text(
        "INSERT INTO message_vectors (workspace_id, message_id, piece, session_id, peer_id, vector, traits, said_at) "
        "SELECT old.workspace_id, new.id, old.piece, new.session_id, old.peer_id, old.vector, "
        f"{traits}, new.created_at "
        "FROM messages AS new "
        "JOIN messages AS source ON source.session_id = :source AND source.seq = new.seq "
        "JOIN message_vectors AS old ON old.workspace_id = source.workspace_id AND old.message_id = source.id "
        "WHERE new.session_id = :copy AND new.seq > :after AND new.seq <= :last"
    )


VECTORS, VECTORS_ANEW = _copy_vectors("old.traits"), _copy_vectors("traits_of(new.content)")
"""The second statement is for folders of an earlier version, whose messages may have no traits yet."""


@dataclass(frozen=True, slots=True)
class Copy:
    workspace: str
    source: str
    source_id: int
    id: int
    name: str
    last: int


def begin_clone(tx: Tx, workspace: str, name: str, message_id: str | None, at: int) -> Copy:
    """Create a hidden session under a new name. Nothing is concluded from the copied messages a second time."""
    source = lock_session(tx, workspace, name)
    last = source.message_count if message_id is None else get_message(tx, workspace, name, message_id).seq
    new_name = new_id()
    copy_id = insert_session(tx, source.workspace_id, new_name, at, source.metadata, source.configuration)
    if copy_id is None:
        raise Conflict(f"Session {new_name} exists already")
    tx.execute(update(sessions).where(sessions.c.id == copy_id).values(is_active=False))
    removal, expiry = SessionDeletionJob(copy_id), at + CLONE_TIMEOUT_MICROSECONDS
    add_job(tx, removal, _unit(copy_id), at, source.workspace_id, not_before=expiry)
    return Copy(workspace, name, source.id, copy_id, new_name, last)


def copy_part(tx: Tx, copy: Copy, after: int) -> int:
    """Copy some of the messages after number `after`. Return the number of the last message copied."""
    get_session(tx, copy.workspace, copy.source)  # raises if it was deleted meanwhile
    last = min(after + MESSAGES_PER_TRANSACTION, copy.last)
    query = select(messages).where(messages.c.session_id == copy.source_id, messages.c.seq > after)
    rows = tx.execute(query.where(messages.c.seq <= last).order_by(messages.c.seq)).all()
    taken = [{column: getattr(row, column) for column in COPIED} for row in rows]
    INSERT.run_many(tx, [{"public_id": new_id(), "session_id": copy.id, **row} for row in taken])
    vectors = VECTORS if has_caught_up(tx) else VECTORS_ANEW
    tx.execute(vectors, {"source": copy.source_id, "copy": copy.id, "after": after, "last": last})
    text_index(tx).add_part(tx, copy.id, after + 1, last)
    made = select(messages.c.id, messages.c.workspace_id, messages.c.metadata).where(messages.c.session_id == copy.id)
    for row in tx.execute(made.where(messages.c.seq > after)).all():
        keep_facts(tx, row.workspace_id, row.id, row.metadata)
    return last


def finish_clone(tx: Tx, copy: Copy, at: int) -> Record:
    """Show the clone, with the members of the original."""
    source = get_session(tx, copy.workspace, copy.source)
    shown = {"message_count": copy.last, "removals": source.removals, "is_active": True}
    tx.execute(update(sessions).where(sessions.c.id == copy.id).values(shown))
    _copy_members(tx, copy, at)
    tx.execute(delete(jobs).where(jobs.c.unit == _unit(copy.id), text(OPEN_JOB)))
    made = find_session(tx, source.workspace_id, copy.name)
    if made is None:
        raise Missing("Session", copy.name)
    return made


def abandon_clone(tx: Tx, copy: Copy) -> None:
    """Have an unfinished clone removed now instead of after an hour."""
    tx.execute(update(jobs).where(jobs.c.unit == _unit(copy.id), text(OPEN_JOB)).values(not_before=0))


def _unit(copy_id: int) -> str:
    return f"clone:{copy_id}"


def _copy_members(tx: Tx, copy: Copy, at: int) -> None:
    active = select(memberships).where(memberships.c.session_id == copy.source_id, memberships.c.left_seq.is_(None))
    members = [
        {
            "session_id": copy.id,
            "peer_id": row.peer_id,
            "observe_me": row.observe_me,
            "observe_others": row.observe_others,
            # Who joined the original after the cut joins the copy at the cut.
            "joined_seq": min(row.joined_seq, copy.last),
            "joined_at": at,
        }
        for row in tx.execute(active.order_by(memberships.c.id))
    ]
    if members:
        tx.execute(insert(memberships), members)
