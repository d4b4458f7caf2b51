"""Which messages left a workspace, so that whoever keeps some in memory leaves out those and need not read all again.

A workspace's generation grows when something changed that was there before. What changed is written down under the
generation that it will show in; the end of each generation is written down as well, so that a gap is seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from sqlalchemy import bindparam, delete, select, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import Prepared, inserting_new
from hermes.memory_server.db.tables import departures, workspaces
from hermes.memory_server.db.text_index import Ids

END, EVERYTHING = -1, 0
"""In place of a message: the generation is whole; everything is to be read again."""
KEPT = 200
"""How many generations are written down. Who is further behind reads everything."""
GENERATION = Prepared(select(workspaces.c.generation).where(workspaces.c.id == bindparam("workspace_id")))
NOTE = Prepared(inserting_new(departures, "workspace_id", "generation", "message_id"))
SINCE = Prepared(
    select(departures.c.message_id)
    .where(departures.c.workspace_id == bindparam("workspace_id"))
    .where(departures.c.generation > bindparam("known"), departures.c.generation <= bindparam("now"))
)


def note_departed(tx: Tx, workspace_id: int, messages: Iterable[int]) -> None:
    """These messages are gone; searches see it with the next generation."""
    found = GENERATION.first(tx, workspace_id=workspace_id)
    coming = 1 if found is None else found.generation + 1
    NOTE.run_many(tx, [{"workspace_id": workspace_id, "generation": coming, "message_id": gone} for gone in messages])


def begin_generation(tx: Tx, workspace_id: int) -> None:
    """Let searches see what was noted."""
    note_departed(tx, workspace_id, [END])
    own = workspaces.c.id == workspace_id
    changed = update(workspaces).where(own).values(generation=workspaces.c.generation + 1)
    now = tx.execute(changed.returning(workspaces.c.generation)).scalar_one_or_none() or 0
    old = (departures.c.workspace_id == workspace_id, departures.c.generation <= now - KEPT)
    tx.execute(delete(departures).where(*old))


def departed_since(tx: Tx, workspace_id: int, known: int, now: int) -> Ids | None:
    """The messages that left after the known generation; None when everything is to be read again."""
    noted = np.fromiter(
        (row.message_id for row in SINCE.rows(tx, workspace_id=workspace_id, known=known, now=now)), np.int64
    )
    if (noted == END).sum() < now - known or (noted == EVERYTHING).any():
        return None
    return np.sort(noted[noted > 0])
