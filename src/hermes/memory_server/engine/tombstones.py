"""Tombstones keep deleted conclusions about a peer from coming back: a hash of the letters is stored, never the words.

The hash uses a key from a separate file in the data folder, so that the database alone does not let anybody test
sentences. A statement made again after the deletion may be concluded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlalchemy import bindparam, delete, func, select

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement, upsert
from hermes.memory_server.db.tables import collections, tombstones
from hermes.ranking.claims import split_speaker

NO_LETTERS = re.compile(r"[\W_]+")
OBSERVED = PreparedStatement(
    select(collections.c.workspace_id, collections.c.observed_id).where(collections.c.id == bindparam("collection_id"))
)
OF_PEER = select(tombstones.c.deleted_at).where(
    tombstones.c.workspace_id == bindparam("workspace_id"), tombstones.c.observed_id == bindparam("observed_id")
)
ANY = PreparedStatement(OF_PEER.limit(1))
FIND = PreparedStatement(OF_PEER.where(tombstones.c.hash == func.keyed_hash(bindparam("letters"))))


def add_tombstones(tx: Tx, collection_id: int, contents: Iterable[str], at: int) -> None:
    """Store tombstones for conclusions that are being deleted, so that they are not derived again about the same
    peer.
    """
    owner = OBSERVED.first(tx, collection_id=collection_id)
    if owner is None:
        return
    for letters in {_letters(content) for content in contents}:
        row = {"workspace_id": owner.workspace_id, "observed_id": owner.observed_id, "deleted_at": at}
        upsert(tx, tombstones, ("workspace_id", "observed_id", "hash"), {**row, "hash": _hash(tx, letters)})


def find_tombstone_time(tx: Tx, collection_id: int, content: str) -> int | None:
    """Return when a conclusion with these letters was deleted about the collection's peer; None if it never was."""
    owner = OBSERVED.first(tx, collection_id=collection_id)
    if owner is None:
        return None
    own = {"workspace_id": owner.workspace_id, "observed_id": owner.observed_id}
    if ANY.first(tx, **own) is None:
        return None  # most peers have no tombstones
    found = FIND.first(tx, letters=_letters(content), **own)
    return None if found is None else int(found.deleted_at)


def give_tombstones(tx: Tx, workspace_id: int, from_id: int, into_id: int) -> None:
    """Copy the tombstones about one peer to another."""
    own = (tombstones.c.workspace_id == workspace_id, tombstones.c.observed_id == from_id)
    for row in tx.execute(select(tombstones).where(*own)).all():
        moved = {"workspace_id": workspace_id, "observed_id": into_id, "deleted_at": row.deleted_at}
        upsert(tx, tombstones, ("workspace_id", "observed_id", "hash"), {**moved, "hash": row.hash})


def drop_tombstones(tx: Tx, workspace_id: int, observed_id: int) -> None:
    """Delete the tombstones about a peer that is deleted itself."""
    own = (tombstones.c.workspace_id == workspace_id, tombstones.c.observed_id == observed_id)
    tx.execute(delete(tombstones).where(*own))


def _hash(tx: Tx, letters: str) -> str:
    return str(tx.execute(select(func.keyed_hash(letters))).scalar_one())


def _letters(content: str) -> str:
    """Return the text without its speaker, capitals and punctuation."""
    return NO_LETTERS.sub(" ", split_speaker(content)[1].casefold()).strip()
