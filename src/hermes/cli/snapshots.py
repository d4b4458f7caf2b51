"""The compressions of a session as a person reads them: what there was before each, and what was left."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.db.engine import Tx
from hermes.llm.tokens import view_tokens
from hermes.store.store import Store
from hermes.types import Compression


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
    session = store.sessions.find(tx, name)
    return [_measure(store, tx, row) for row in store.compressions.all(tx, session.id)]


def _measure(store: Store, tx: Tx, row: Compression) -> Snapshot:
    before = store.compressions.snapshot(tx, row.snapshot_id)
    after = store.compressions.swapped(tx, row)
    return Snapshot(
        id=row.snapshot_id,
        session_id=row.session_id,
        created_at=row.created_at,
        messages_before=len(before.messages),
        messages_after=len(after.messages),
        tokens_before=view_tokens(before),
        tokens_after=view_tokens(after),
    )
