"""Which messages left a workspace, so that whoever keeps some in memory leaves out those and need not read all again.

A workspace has a generation, a number that grows whenever existing messages disappear or get another author. Messages
that left are noted under the generation that comes next, and each generation ends with a row of its own, so that a gap
can be noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from sqlalchemy import bindparam, delete, func, select, tuple_, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting_new
from hermes.memory_server.db.tables import departures, workspaces
from hermes.memory_server.db.text_index import MessageIds

END, EVERYTHING = -1, 0
"""Stand in place of a message id: "this generation is complete", and "read everything again"."""
KEPT = 200
"""How many generations are kept. Who is further behind reads everything again."""
ROWS = 20_000
"""How many messages are noted per workspace at most; the oldest generations are dropped first."""
FORGOTTEN = 200
"""Old rows that are removed at a time: more than are added at a time, so that the table stays small."""
GENERATION = PreparedStatement(select(workspaces.c.generation).where(workspaces.c.id == bindparam("workspace_id")))
NOTE = PreparedStatement(inserting_new(departures, "workspace_id", "generation", "message_id"))
OWN = departures.c.workspace_id == bindparam("workspace_id")
OF_ONE = select(departures.c.message_id).where(OWN, departures.c.generation == bindparam("generation"))
NOTED = PreparedStatement(select(func.count().label("size")).select_from(OF_ONE.limit(bindparam("most")).subquery()))
BEYOND = PreparedStatement(
    select(departures.c.generation)
    .where(OWN)
    .order_by(departures.c.generation.desc(), departures.c.message_id.desc())
    .limit(1)
    .offset(bindparam("rows"))
)
"""The generation of the newest row that is one too many."""
OLDEST = (
    select(departures.c.generation, departures.c.message_id)
    .where(OWN, departures.c.generation <= bindparam("last"))
    .order_by(departures.c.generation, departures.c.message_id)
    .limit(bindparam("most"))
)
FORGET = PreparedStatement(
    delete(departures).where(OWN, tuple_(departures.c.generation, departures.c.message_id).in_(OLDEST))
)
SINCE = PreparedStatement(
    select(departures.c.message_id)
    .where(OWN)
    .where(departures.c.generation > bindparam("known"), departures.c.generation <= bindparam("now"))
)


def note_departed(tx: Tx, workspace_id: int, messages: Sequence[int]) -> None:
    """Note that these messages left; searches see it when the next generation begins. For too many, note instead that
    everything has to be read again."""
    found = GENERATION.first(tx, workspace_id=workspace_id)
    coming = 1 if found is None else found.generation + 1
    noted = NOTED.rows(tx, workspace_id=workspace_id, generation=coming, most=ROWS)[0].size
    _note(tx, workspace_id, coming, messages if noted + len(messages) <= ROWS else [EVERYTHING])
    _forget_old(tx, workspace_id, coming)


def begin_generation(tx: Tx, workspace_id: int) -> None:
    """Begin the next generation: from its commit on, searches see what was noted."""
    own = workspaces.c.id == workspace_id
    changed = update(workspaces).where(own).values(generation=workspaces.c.generation + 1)
    now = tx.execute(changed.returning(workspaces.c.generation)).scalar_one_or_none()
    if now is not None:
        _note(tx, workspace_id, now, [END])
        _forget_old(tx, workspace_id, now)


def _note(tx: Tx, workspace_id: int, generation: int, noted: Iterable[int]) -> None:
    NOTE.run_many(tx, [{"workspace_id": workspace_id, "generation": generation, "message_id": each} for each in noted])


def _forget_old(tx: Tx, workspace_id: int, now: int) -> None:
    """Remove some of the oldest rows. The row that ends a generation goes first, so that a generation of which a part
    is gone counts as gone."""
    beyond = BEYOND.first(tx, workspace_id=workspace_id, rows=ROWS)
    last = max(now - KEPT, min(beyond.generation, now - 1) if beyond is not None else 0)
    FORGET.run(tx, workspace_id=workspace_id, last=last, most=FORGOTTEN)


def departed_since(tx: Tx, workspace_id: int, known: int, now: int) -> MessageIds | None:
    """The messages that left after generation `known`; None when everything has to be read again."""
    noted = np.fromiter(
        (row.message_id for row in SINCE.rows(tx, workspace_id=workspace_id, known=known, now=now)), np.int64
    )
    if (noted == END).sum() < now - known or (noted == EVERYTHING).any():
        return None
    return np.sort(noted[noted > 0])
