"""The compressions of a session as a person reads them: what there was before each, and what was left."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.llm.tokens import view_tokens
from hermes.store.store import Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One compression: messages and tokens the model saw before and after it."""

    id: str
    session_id: str
    created_at: float
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int


def read_snapshots(store: Store, tx: Tx, name: str) -> list[Snapshot]:
    """Every snapshot of the session a person means, oldest first."""
    found: list[Snapshot] = []
    for row in store.compressions.all(tx, store.sessions.find(tx, name).id):
        before, after = store.compressions.snapshot(tx, row.snapshot_id), store.compressions.swapped(tx, row)
        messages, tokens = (len(before.messages), len(after.messages)), (view_tokens(before), view_tokens(after))
        found.append(Snapshot(row.snapshot_id, row.session_id, row.created_at, *messages, *tokens))
    return found
