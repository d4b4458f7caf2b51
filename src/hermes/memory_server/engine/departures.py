"""A log of the messages that left a workspace, so that processes that cache messages can drop these and need not read
everything again.

A workspace has a generation, a number that grows whenever existing messages disappear or get another author. Messages
that left are logged under the next generation, and each generation ends with a row of its own, so that a gap is
noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from sqlalchemy import bindparam, delete, func, select, tuple_, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting_new
from hermes.memory_server.db.tables import departures, workspaces
from hermes.memory_server.db.text_index import MessageIds

GENERATION_END, READ_ALL_AGAIN = -1, 0
"""Stand in place of a message id for "this generation is complete" and "read everything again"."""
MAX_GENERATIONS = 200
"""The number of generations that are kept. A process that is further behind reads everything again."""
MAX_ROWS = 20_000
"""The number of rows that are kept per workspace; the oldest generations are deleted first."""
ROWS_PER_CLEANUP = 200
"""The number of old rows that are deleted at a time: more than are usually added, so the table stays small."""
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
"""The generation of the newest row beyond the limit."""
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
    """Log that these messages left; searches see it when the next generation begins. If there are too many, log
    instead that everything must be read again.
    """
    found = GENERATION.first(tx, workspace_id=workspace_id)
    coming = 1 if found is None else found.generation + 1
    noted = NOTED.rows(tx, workspace_id=workspace_id, generation=coming, most=MAX_ROWS)[0].size
    _note(tx, workspace_id, coming, messages if noted + len(messages) <= MAX_ROWS else [READ_ALL_AGAIN])
    _forget_old(tx, workspace_id, coming)


def begin_generation(tx: Tx, workspace_id: int) -> None:
    """Begin the next generation: from its commit on, searches see the messages logged for it."""
    own = workspaces.c.id == workspace_id
    changed = update(workspaces).where(own).values(generation=workspaces.c.generation + 1)
    now = tx.execute(changed.returning(workspaces.c.generation)).scalar_one_or_none()
    if now is not None:
        _note(tx, workspace_id, now, [GENERATION_END])
        _forget_old(tx, workspace_id, now)


def _note(tx: Tx, workspace_id: int, generation: int, noted: Iterable[int]) -> None:
    NOTE.run_many(tx, [{"workspace_id": workspace_id, "generation": generation, "message_id": each} for each in noted])


def _forget_old(tx: Tx, workspace_id: int, now: int) -> None:
    """Delete some of the oldest rows. The row that ends a generation goes first, so a generation that is partly
    deleted counts as missing.
    """
    beyond = BEYOND.first(tx, workspace_id=workspace_id, rows=MAX_ROWS)
    last = max(now - MAX_GENERATIONS, min(beyond.generation, now - 1) if beyond is not None else 0)
    FORGET.run(tx, workspace_id=workspace_id, last=last, most=ROWS_PER_CLEANUP)


def departed_since(tx: Tx, workspace_id: int, known: int, now: int) -> MessageIds | None:
    """Return the messages that left after generation `known`; None if everything must be read again."""
    noted = np.fromiter(
        (row.message_id for row in SINCE.rows(tx, workspace_id=workspace_id, known=known, now=now)), np.int64
    )
    if (noted == GENERATION_END).sum() < now - known or (noted == READ_ALL_AGAIN).any():
        return None
    return np.sort(noted[noted > 0])
