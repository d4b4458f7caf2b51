"""Peer cards: a few lines that an observer always has at hand about a peer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import upsert
from hermes.memory_server.db.tables import cards
from hermes.memory_server.engine.conclusions import ensure_collection, find_collection


def read_card(tx: Tx, observer_id: int, observed_id: int) -> list[str] | None:
    """The card's lines; None when there is no card."""
    collection = find_collection(tx, observer_id, observed_id)
    if collection is None:
        return None
    found = tx.execute(select(cards.c.lines).where(cards.c.collection_id == collection)).scalar_one_or_none()
    return None if found is None else [str(line) for line in json.loads(found)]


def write_card(
    tx: Tx, workspace_id: int, observer_id: int, observed_id: int, lines: Sequence[str], at: int, *, written_by: str
) -> None:
    collection = ensure_collection(tx, workspace_id, observer_id, observed_id)
    values = {"lines": json.dumps(list(lines)), "written_by": written_by, "updated_at": at}
    upsert(tx, cards, ("collection_id",), {"collection_id": collection, **values})


def is_written_by_person(tx: Tx, observer_id: int, observed_id: int) -> bool:
    """Did a person or client, not a dream, write the card? One that was emptied is nobody's."""
    collection = find_collection(tx, observer_id, observed_id)
    query = select(cards.c.written_by).where(cards.c.collection_id == (collection or 0), cards.c.lines != "[]")
    return tx.execute(query).scalar_one_or_none() == "person"
