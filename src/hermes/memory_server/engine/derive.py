"""From messages to conclusions. The floor: a person's own statements, word for word, with where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, select, update

from hermes.memory_server.db.engine import Record, Tx
from hermes.memory_server.db.statements import Prepared
from hermes.memory_server.db.tables import conclusions
from hermes.memory_server.engine.conclusions import digest, ensure_collection, insert_conclusion
from hermes.memory_server.engine.embed import embed, to_blob
from hermes.memory_server.engine.messages import find_messages
from hermes.memory_server.engine.sentences import is_statement, split_sentences

KNOWN = Prepared(
    select(conclusions.c.id, conclusions.c.message_ids, conclusions.c.times_derived)
    .where(conclusions.c.collection_id == bindparam("collection_id"), conclusions.c.digest == bindparam("digest"))
    .where(conclusions.c.session_id == bindparam("session_id"), conclusions.c.deleted_at.is_(None))
    .where(conclusions.c.level == "explicit")
)


def derive(tx: Tx, workspace_id: int, payload: Mapping[str, Any]) -> int:
    """Read conclusions from a job's messages for each of its observers. How many were new."""
    new = 0
    for row in find_messages(tx, sorted(payload["messages"])):
        said = [f"{row.peer}: {sentence}" for sentence in split_sentences(row.content) if is_statement(sentence)]
        for observer in payload["observers"] if said else ():
            collection = ensure_collection(tx, workspace_id, observer, row.peer_id)
            new += sum(_remember(tx, collection, row, content) for content in said)
    return new


def _remember(tx: Tx, collection_id: int, message: Record, content: str) -> int:
    """Store a conclusion, or count one that is there already once more."""
    known = KNOWN.first(tx, collection_id=collection_id, digest=digest(content), session_id=message.session_id)
    if known is None:
        insert_conclusion(
            tx,
            message.workspace_id,
            collection_id,
            message.session_id,
            content,
            message.created_at,
            vector=to_blob(embed(content)),
            message_ids=[message.id],
        )
        return 1
    sources = json.loads(known.message_ids or "[]")
    if message.id not in sources:
        changes = {"message_ids": json.dumps([*sources, message.id]), "times_derived": known.times_derived + 1}
        tx.execute(update(conclusions).where(conclusions.c.id == known.id).values(**changes))
    return 0
