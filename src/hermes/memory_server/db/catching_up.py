"""Upgrade of the messages of an earlier version, in parts, while the folder is served.

Two marks in `meta` bound the messages that are not upgraded yet. Their words are still indexed as the earlier version
did, and the traits and dates that searches store with vectors are missing."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.dialects import text_index
from hermes.memory_server.db.statements import PreparedStatement
from hermes.memory_server.db.tables import message_vectors, messages, meta
from hermes.memory_server.db.text_index import UNREAD_AFTER, UNREAD_UNTIL
from hermes.memory_server.engine.sentences import message_traits

MARK = PreparedStatement(select(meta.c.value).where(meta.c.name == bindparam("name")))
SET_TRAITS = PreparedStatement(
    update(message_vectors)
    .where(message_vectors.c.workspace_id == bindparam("of"), message_vectors.c.message_id == bindparam("id"))
    .values(traits=bindparam("found"), said_at=bindparam("at"))
)


def begin_catching_up(tx: Tx) -> bool:
    """Mark all messages as not upgraded. Return False without messages."""
    newest = tx.execute(select(func.max(messages.c.id))).scalar_one_or_none()
    if newest is None:
        return False
    marks: list[dict[str, Any]] = [{"name": UNREAD_AFTER, "value": "0"}, {"name": UNREAD_UNTIL, "value": str(newest)}]
    tx.execute(insert(meta), marks)
    return True


def has_caught_up(tx: Tx) -> bool:
    """Return True if every message is upgraded."""
    return MARK.first(tx, name=UNREAD_UNTIL) is None


def catch_up(tx: Tx, most: int) -> bool:
    """Upgrade up to `most` messages. Return True if more may remain."""
    marks = [MARK.first(tx, name=name) for name in (UNREAD_AFTER, UNREAD_UNTIL)]
    if marks[0] is None or marks[1] is None:
        return False
    after, until = (int(mark.value) for mark in marks if mark is not None)
    query = select(messages.c.id, messages.c.workspace_id, messages.c.created_at, messages.c.content)
    unread = query.where(messages.c.id > after, messages.c.id <= until).order_by(messages.c.id).limit(most)
    rows = tx.execute(unread).all()
    if rows:
        known = [
            {"of": r.workspace_id, "id": r.id, "found": message_traits(r.content), "at": r.created_at} for r in rows
        ]
        SET_TRAITS.run_many(tx, known)
        text_index(tx).respell(tx, after, rows[-1].id)
        tx.execute(update(meta).where(meta.c.name == UNREAD_AFTER).values(value=str(rows[-1].id)))
    if len(rows) < most:
        tx.execute(delete(meta).where(meta.c.name.in_((UNREAD_AFTER, UNREAD_UNTIL))))
    return len(rows) == most
