"""From messages to conclusions. The floor: a person's own statements, word for word, with where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, select, update

from hermes.memory_server.db.engine import Tx
from hermes.memory_server.db.tables import conclusions, messages
from hermes.memory_server.engine.conclusions import digest, embed_all, ensure_collection, insert_conclusion
from hermes.memory_server.engine.messages import select_messages
from hermes.memory_server.engine.sentences import is_statement, split_sentences


def derive(tx: Tx, workspace_id: int, payload: Mapping[str, Any]) -> int:
    """Read conclusions from a job's messages for each of its observers. How many were new."""
    rows = list(tx.execute(select_messages().where(messages.c.id.in_(payload["messages"])).order_by(messages.c.seq)))
    new = 0
    for row in rows:
        said = [f"{row.peer}: {sentence}" for sentence in split_sentences(row.content) if is_statement(sentence)]
        vectors = embed_all(said)
        for observer in payload["observers"]:
            collection = ensure_collection(tx, workspace_id, observer, row.peer_id)
            for content, vector in zip(said, vectors, strict=True):
                new += _remember(tx, collection, row, content, vector)
    return new


def _remember(tx: Tx, collection_id: int, message: Row[Any], content: str, vector: bytes) -> int:
    """Store a conclusion, or count one that is there already once more."""
    same = (conclusions.c.collection_id == collection_id, conclusions.c.digest == digest(content))
    query = select(conclusions.c.id, conclusions.c.message_ids, conclusions.c.times_derived).where(
        *same, conclusions.c.session_id == message.session_id, conclusions.c.deleted_at.is_(None)
    )
    known = tx.execute(query.where(conclusions.c.level == "explicit")).first()
    if known is None:
        insert_conclusion(
            tx,
            message.workspace_id,
            collection_id,
            message.session_id,
            content,
            message.created_at,
            vector=vector,
            message_ids=[message.id],
        )
        return 1
    sources = json.loads(known.message_ids or "[]")
    if message.id not in sources:
        changes = {"message_ids": json.dumps([*sources, message.id]), "times_derived": known.times_derived + 1}
        tx.execute(update(conclusions).where(conclusions.c.id == known.id).values(**changes))
    return 0
