"""A copy of a session, up to a message: its messages and members, in the same workspace and nowhere else."""

from __future__ import annotations

from sqlalchemy import insert, select, update

from hermes.memory_server.db.engine import Record, Tx
from hermes.memory_server.db.tables import memberships, message_vectors, messages, sessions
from hermes.memory_server.engine.messages import get_message, index_messages
from hermes.memory_server.engine.sessions import find_session, get_session, insert_session
from hermes.memory_server.faults import Missing
from hermes.memory_server.ids import new_id

COPIED = ("workspace_id", "peer_id", "seq", "content", "metadata", "token_count", "created_at", "file")


def clone_session(tx: Tx, workspace: str, name: str, message_id: str | None, at: int) -> Record:
    """The copy, under a new name. What was reasoned about the original is not reasoned about again."""
    source = get_session(tx, workspace, name)
    last = source.message_count if message_id is None else get_message(tx, workspace, name, message_id).seq
    new_name = new_id()
    copy_id = insert_session(tx, source.workspace_id, new_name, at, source.metadata, source.configuration)
    query = select(messages).where(messages.c.session_id == source.id, messages.c.seq <= last)
    count = 0
    for row in tx.execute(query.order_by(messages.c.seq)).all():
        _copy_message(tx, row, copy_id)
        count += 1
    tx.execute(update(sessions).where(sessions.c.id == copy_id).values(message_count=count))
    _copy_members(tx, source.id, copy_id, count, at)
    made = find_session(tx, source.workspace_id, new_name)
    if made is None:
        raise Missing("Session", new_name)
    return made


def _copy_message(tx: Tx, row: Record, session_id: int) -> None:
    values = {column: getattr(row, column) for column in COPIED}
    made = tx.execute(insert(messages).values(public_id=new_id(), session_id=session_id, **values))
    own = (message_vectors.c.workspace_id == row.workspace_id, message_vectors.c.message_id == row.id)
    stored = tx.execute(select(message_vectors.c.vector).where(*own).order_by(message_vectors.c.piece))
    vectors = [found.vector for found in stored]
    index_messages(tx, [(int(made.lastrowid), row.workspace_id, session_id, row.peer_id, row.content, vectors)])


def _copy_members(tx: Tx, source_id: int, copy_id: int, count: int, at: int) -> None:
    active = select(memberships).where(memberships.c.session_id == source_id, memberships.c.left_seq.is_(None))
    for row in tx.execute(active.order_by(memberships.c.id)).all():
        values = {"observe_me": row.observe_me, "observe_others": row.observe_others}
        values["joined_seq"] = min(row.joined_seq, count)  # who came after the cut is in from the cut on
        tx.execute(insert(memberships).values(session_id=copy_id, peer_id=row.peer_id, joined_at=at, **values))
