"""A copy of a session, up to a message: its messages and members, in the same workspace and nowhere else."""

from __future__ import annotations

from sqlalchemy import insert, select, text, update

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.tables import memberships, messages, sessions
from hermes.memory_server.engine.messages import INSERT, get_message
from hermes.memory_server.engine.sessions import find_session, insert_session, lock_session
from hermes.memory_server.faults import Conflict, Missing
from hermes.memory_server.ids import new_id

COPIED = ("workspace_id", "peer_id", "seq", "content", "metadata", "token_count", "created_at", "file")
VECTORS = text(
    "INSERT INTO message_vectors (workspace_id, message_id, piece, session_id, peer_id, vector) "
    "SELECT old.workspace_id, new.id, old.piece, new.session_id, old.peer_id, old.vector FROM messages AS new "
    "JOIN messages AS source ON source.session_id = :source AND source.seq = new.seq "
    "JOIN message_vectors AS old ON old.workspace_id = source.workspace_id AND old.message_id = source.id "
    "WHERE new.session_id = :copy"
)


def clone_session(tx: Tx, workspace: str, name: str, message_id: str | None, at: int) -> Record:
    """The copy, under a new name. What was reasoned about the original is not reasoned about again."""
    source = lock_session(tx, workspace, name)
    last = source.message_count if message_id is None else get_message(tx, workspace, name, message_id).seq
    new_name = new_id()
    copy_id = insert_session(tx, source.workspace_id, new_name, at, source.metadata, source.configuration)
    if copy_id is None:
        raise Conflict(f"Session {new_name} exists already")
    _copy_messages(tx, source.id, copy_id, last)
    tx.execute(update(sessions).where(sessions.c.id == copy_id).values(message_count=last))
    _copy_members(tx, source.id, copy_id, last, at)
    made = find_session(tx, source.workspace_id, new_name)
    if made is None:
        raise Missing("Session", new_name, workspace)
    return made


def _copy_messages(tx: Tx, source_id: int, copy_id: int, last: int) -> None:
    """All at once: whoever wants to write waits meanwhile."""
    query = select(messages).where(messages.c.session_id == source_id, messages.c.seq <= last)
    rows = tx.execute(query.order_by(messages.c.seq)).all()
    taken = [{column: getattr(row, column) for column in COPIED} for row in rows]
    INSERT.run_many(tx, [{"public_id": new_id(), "session_id": copy_id, **row} for row in taken])
    tx.execute(VECTORS, {"source": source_id, "copy": copy_id})
    text_index(tx).add_session(tx, copy_id)


def _copy_members(tx: Tx, source_id: int, copy_id: int, count: int, at: int) -> None:
    active = select(memberships).where(memberships.c.session_id == source_id, memberships.c.left_seq.is_(None))
    for row in tx.execute(active.order_by(memberships.c.id)).all():
        values = {"observe_me": row.observe_me, "observe_others": row.observe_others}
        values["joined_seq"] = min(row.joined_seq, count)  # who came after the cut is in from the cut on
        tx.execute(insert(memberships).values(session_id=copy_id, peer_id=row.peer_id, joined_at=at, **values))
