"""What was deleted about a peer stays deleted: a hash of its letters is kept, never the words.

The hash needs a key that is in a file of its own in the data folder, so that who has the database alone cannot try out
sentences. What is said anew later than the deletion may be concluded again.
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


def bury(tx: Tx, collection_id: int, contents: Iterable[str], at: int) -> None:
    """Keep conclusions of a collection, which are being deleted, from coming back about the same peer."""
    owner = OBSERVED.first(tx, collection_id=collection_id)
    if owner is None:
        return
    for letters in {_letters(content) for content in contents}:
        row = {"workspace_id": owner.workspace_id, "observed_id": owner.observed_id, "deleted_at": at}
        upsert(tx, tombstones, ("workspace_id", "observed_id", "hash"), {**row, "hash": _hash(tx, letters)})


def buried_at(tx: Tx, collection_id: int, content: str) -> int | None:
    """Return when a conclusion with these letters was deleted about the peer of a collection; None if it never was."""
    owner = OBSERVED.first(tx, collection_id=collection_id)
    if owner is None:
        return None
    own = {"workspace_id": owner.workspace_id, "observed_id": owner.observed_id}
    if ANY.first(tx, **own) is None:
        return None  # of nearly everyone nothing was deleted
    found = FIND.first(tx, letters=_letters(content), **own)
    return None if found is None else int(found.deleted_at)


def give_tombstones(tx: Tx, workspace_id: int, from_id: int, into_id: int) -> None:
    """Let what was deleted about one peer be deleted about another, too."""
    own = (tombstones.c.workspace_id == workspace_id, tombstones.c.observed_id == from_id)
    for row in tx.execute(select(tombstones).where(*own)).all():
        moved = {"workspace_id": workspace_id, "observed_id": into_id, "deleted_at": row.deleted_at}
        upsert(tx, tombstones, ("workspace_id", "observed_id", "hash"), {**moved, "hash": row.hash})


def drop_tombstones(tx: Tx, workspace_id: int, observed_id: int) -> None:
    """Forget what was deleted about a peer that is deleted itself."""
    own = (tombstones.c.workspace_id == workspace_id, tombstones.c.observed_id == observed_id)
    tx.execute(delete(tombstones).where(*own))


def _hash(tx: Tx, letters: str) -> str:
    return str(tx.execute(select(func.keyed_hash(letters))).scalar_one())


def _letters(content: str) -> str:
    """Return what is said without who says it, capitals and punctuation."""
    return NO_LETTERS.sub(" ", split_speaker(content)[1].casefold()).strip()
