"""Vectors of a second embedder, which understands more and takes longer: made in the background, and used for the order
of the best candidates.

Each says which space it is of. Those of another space than the question's count as not there, so that two kinds are
never compared, also while they are being replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, FromClause, Row, and_, bindparam, case, delete, exists, func, select, update

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting, inserting_new, upsert
from hermes.memory_server.db.tables import (
    conclusion_messages,
    finer_again,
    finer_progress,
    finer_vectors,
    messages,
    meta,
    peers,
    sessions,
    workspaces,
)
from hermes.memory_server.embedder import Finer, Vector, from_blobs
from hermes.memory_server.engine.candidates import Candidates
from hermes.memory_server.engine.peers import is_shown
from hermes.ranking.scoring import Floats, score_finer

CHOSEN = "finer_embedder"
"""The key in `meta` of the space that is being filled: the one that was chosen last."""
REFINED = 150
"""How many of the best candidates are looked at again."""
TRIES = 10
"""A message that failed so often, in a batch of its own, is left out until the next start."""
COUNTED = 10_000
"""Waiting messages are counted up to this number."""


def _is_there(table: FromClause) -> ColumnElement[bool]:
    """The condition, on `messages` or an alias of it, that session and author are not deleted. It covers workspaces
    too: a deleted one has only deleted sessions."""
    session = exists().where(sessions.c.id == table.c.session_id, sessions.c.is_active.is_(True))
    return and_(session, exists().where(peers.c.id == table.c.peer_id, is_shown(peers)))


IN_SPACE = finer_progress.c.space == bindparam("space")
UPTO = case((IN_SPACE, finer_progress.c.upto), else_=0)
WITH_PROGRESS = workspaces.outerjoin(finer_progress, finer_progress.c.workspace_id == workspaces.c.id)
BEHIND = PreparedStatement(
    select(workspaces.c.id, func.coalesce(UPTO, 0).label("upto"))
    .select_from(WITH_PROGRESS)
    .where(
        exists().where(
            messages.c.workspace_id == workspaces.c.id, messages.c.id > func.coalesce(UPTO, 0), _is_there(messages)
        )
    )
    .limit(1)
)
WAITING = (
    select(finer_again)
    .select_from(finer_again.join(messages, messages.c.id == finer_again.c.message_id))
    .where(finer_again.c.failures < TRIES, _is_there(messages))
)
AGAIN = PreparedStatement(
    WAITING.order_by(finer_again.c.failures, finer_again.c.workspace_id, finer_again.c.message_id).limit(
        bindparam("most")
    )
)
EARLIER, NEAR = messages.alias("earlier"), messages.alias("near")
BEFORE = (
    select(NEAR.c.id)
    .where(NEAR.c.session_id == messages.c.session_id, NEAR.c.seq < messages.c.seq)
    .order_by(NEAR.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
AFTER = (
    select(NEAR.c.id)
    .where(NEAR.c.session_id == EARLIER.c.session_id, NEAR.c.seq > EARLIER.c.seq)
    .order_by(NEAR.c.seq)
    .limit(1)
    .scalar_subquery()
)
IS_ANSWERED = EARLIER.c.peer_id != messages.c.peer_id
"""SQL condition: a message is an answer to the one before it, which helps to understand it."""
WITH_BEFORE = select(
    messages.c.id, messages.c.content, EARLIER.c.id.label("before_id"), EARLIER.c.content.label("before")
).select_from(messages.outerjoin(EARLIER, and_(EARLIER.c.id == BEFORE, IS_ANSWERED, _is_there(EARLIER))))
NEXT = PreparedStatement(
    WITH_BEFORE.where(messages.c.workspace_id == bindparam("workspace_id"), messages.c.id > bindparam("upto"))
    .where(_is_there(messages))
    .order_by(messages.c.id)
    .limit(bindparam("most"))
)
PROGRESS = PreparedStatement(select(finer_progress).where(finer_progress.c.workspace_id == bindparam("workspace_id")))
SAID = PreparedStatement(select(meta.c.value).where(meta.c.name == CHOSEN))
INSERT = PreparedStatement(inserting(finer_vectors))
LEAVE = PreparedStatement(inserting_new(finer_again, "workspace_id", "message_id", "failures"))
Made = tuple[int, int, bytes]
"""A vector: of which message and which piece of it, and itself."""


@dataclass(frozen=True, slots=True)
class MessagePair:
    """A message, and the one before it in its session, if that is somebody else's."""

    id: int
    text: str
    before_id: int | None
    before: str | None


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """Messages of one workspace that have no vectors yet, the oldest first."""

    workspace_id: int
    upto: int | None
    """The id after which the batch begins, without a gap; None for messages that were passed over earlier."""
    messages: Sequence[MessagePair]
    failures: int = 0
    """How often each has failed."""


def choose_space(tx: Tx, space: str) -> None:
    """Make this the space that is filled. Messages that failed in it are tried again."""
    tx.execute(update(finer_again).where(finer_again.c.failures > 0).values(failures=0))
    upsert(tx, meta, ("name",), {"name": CHOSEN, "value": space})


def chosen_space(tx: Tx) -> str | None:
    found = SAID.first(tx)
    return None if found is None else str(found.value)


def next_batch(tx: Tx, space: str, most: int) -> EmbeddingBatch | None:
    """The next messages to embed: new ones first, then those to be embedded again. None when nothing is left."""
    behind = BEHIND.first(tx, space=space)
    if behind is None:
        return _again(tx, most)
    rows = NEXT.rows(tx, workspace_id=behind.id, upto=behind.upto, most=most)
    return EmbeddingBatch(behind.id, behind.upto, [MessagePair(*row) for row in rows])


def _again(tx: Tx, most: int) -> EmbeddingBatch | None:
    rows = AGAIN.rows(tx, most=most)
    if not rows:
        return None
    first = rows[0]
    ids = [row.message_id for row in rows if (row.workspace_id, row.failures) == (first.workspace_id, first.failures)]
    found = tx.execute(WITH_BEFORE.where(messages.c.id.in_(ids)).order_by(messages.c.id)).all()
    return EmbeddingBatch(first.workspace_id, None, [MessagePair(*row) for row in found], first.failures)


def store_batch(tx: Tx, space: str, batch: EmbeddingBatch, vectors: Sequence[Made], failures: int) -> None:
    """Keep the vectors of a batch in place of older ones; a message without any has failed so often now.
    Nothing is kept that is of no use any more: another space was chosen, somebody else was faster, or a message that
    they were made of was deleted."""
    known = PROGRESS.first(tx, workspace_id=batch.workspace_id)
    upto = known.upto if known is not None and known.space == space else 0
    if chosen_space(tx) != space or batch.upto not in (None, upto):
        return
    ids = [said.id for said in batch.messages]
    used = {*ids, *(said.before_id for said in batch.messages if said.before_id)}
    if tx.execute(select(func.count()).where(messages.c.id.in_(used))).scalar_one() < len(used):
        return
    for table in (finer_vectors, finer_again):
        tx.execute(delete(table).where(table.c.workspace_id == batch.workspace_id, table.c.message_id.in_(ids)))
    rows = [
        {"workspace_id": batch.workspace_id, "message_id": message, "piece": piece, "space": space, "vector": vector}
        for message, piece, vector in vectors
    ]
    INSERT.run_many(tx, rows)
    made = {message for message, _, _ in vectors}
    failed = {"workspace_id": batch.workspace_id, "failures": failures}
    LEAVE.run_many(tx, [failed | {"message_id": message} for message in ids if message not in made])
    if batch.upto is not None:
        progress = {"workspace_id": batch.workspace_id, "space": space, "upto": ids[-1]}
        upsert(tx, finer_progress, ("workspace_id",), progress)


def forget_in_finer(tx: Tx, rows: Sequence[Row[Any]]) -> None:
    """Drop the vectors that messages of one session, which are still there, have a part in: their own, and those of the
    messages that follow them, which are embedded again unless the session is deleted."""
    ids = [row.id for row in rows]
    following = select(messages.c.id).where(EARLIER.c.id.in_(ids), messages.c.id.not_in(ids))
    after = tx.execute(following.select_from(EARLIER.join(messages, messages.c.id == AFTER))).scalars().all()
    own = finer_vectors.c.workspace_id == rows[0].workspace_id
    lost = select(finer_vectors.c.message_id).where(own, finer_vectors.c.message_id.in_(after)).distinct()
    again = [{"workspace_id": rows[0].workspace_id, "message_id": each} for each in tx.execute(lost).scalars()]
    tx.execute(delete(finer_vectors).where(own, finer_vectors.c.message_id.in_([*ids, *after])))
    gone = (finer_again.c.workspace_id == rows[0].workspace_id, finer_again.c.message_id.in_(ids))
    tx.execute(delete(finer_again).where(*gone))
    if tx.execute(select(sessions.c.is_active).where(sessions.c.id == rows[0].session_id)).scalar_one():
        LEAVE.run_many(tx, [each | {"failures": 0} for each in again])


def count_behind(tx: Tx, space: str) -> int:
    """How many messages have no vector of this space yet, counted up to COUNTED."""
    new = (
        select(messages.c.id)
        .select_from(WITH_PROGRESS.join(messages, messages.c.workspace_id == workspaces.c.id))
        .where(messages.c.id > func.coalesce(UPTO, 0), _is_there(messages))
    )
    counts = (select(func.count()).select_from(some.limit(COUNTED).subquery()) for some in (new, WAITING))
    return min(COUNTED, sum(int(tx.execute(count, {"space": space}).scalar_one()) for count in counts))


def count_refused(tx: Tx) -> int:
    """How many messages are left out because the embedder refused them or failed, counted up to COUNTED."""
    refused = select(finer_again.c.message_id).where(finer_again.c.failures >= TRIES).limit(COUNTED)
    return int(tx.execute(select(func.count()).select_from(refused.subquery())).scalar_one())


def find_directions(tx: Tx, workspace_id: int, finer: Finer, ids: Sequence[int]) -> dict[int, Vector]:
    """Return the vectors of those of the messages that have one in the space of a question, of their first pieces."""
    own = (finer_vectors.c.workspace_id == workspace_id, finer_vectors.c.space == finer.space)
    query = select(finer_vectors.c.message_id, finer_vectors.c.vector).where(*own, finer_vectors.c.piece == 0)
    rows = tx.execute(query.where(finer_vectors.c.message_id.in_(ids))).all() if ids else []
    vectors = from_blobs([row.vector for row in rows], len(finer.vector))
    return {row.message_id: vector for row, vector in zip(rows, vectors, strict=True) if vector.any()}


def find_conclusion_directions(tx: Tx, workspace_id: int, finer: Finer, ids: Sequence[int]) -> dict[int, Vector]:
    """Return for conclusions the vector of the piece, of the messages that they were read from, that is closest to the
    question."""
    read = conclusion_messages.join(finer_vectors, conclusion_messages.c.message_id == finer_vectors.c.message_id)
    own = (finer_vectors.c.workspace_id == workspace_id, finer_vectors.c.space == finer.space)
    query = select(conclusion_messages.c.conclusion_id, finer_vectors.c.vector).select_from(read).where(*own)
    rows = tx.execute(query.where(conclusion_messages.c.conclusion_id.in_(ids))).all() if ids else []
    vectors = from_blobs([row.vector for row in rows], len(finer.vector))
    closest = np.argsort(vectors @ finer.vector, kind="stable")  # the last of a conclusion stays
    return {rows[at].conclusion_id: vectors[at] for at in closest.tolist() if vectors[at].any()}


def closeness(tx: Tx, workspace_id: int, finer: Finer, ids: Sequence[int]) -> Floats:
    """How close each of these messages is, by the closest of its pieces; NaN for one without a vector of the space, or
    that the embedder cannot read."""
    query = select(finer_vectors.c.message_id, finer_vectors.c.vector).where(
        finer_vectors.c.workspace_id == workspace_id,
        finer_vectors.c.message_id.in_(ids),
        finer_vectors.c.space == finer.space,
    )
    rows = tx.execute(query).all()
    vectors = from_blobs([row.vector for row in rows], len(finer.vector))
    close = np.where(vectors.any(axis=1), vectors @ finer.vector, np.nan)
    best: dict[int, float] = {}
    for row, value in zip(rows, close.tolist(), strict=True):
        best[row.message_id] = float(np.fmax(best.get(row.message_id, value), value))
    return np.array([best.get(message, np.nan) for message in ids], dtype=np.float32)


def refined(tx: Tx, workspace_id: int, found: Candidates, scores: Floats, finer: Finer) -> Floats:
    """The scores with what finer vectors tell of the best candidates; as they are where there are none."""
    best = np.argsort(-scores)[:REFINED]
    close = closeness(tx, workspace_id, finer, found.ids[best].tolist())
    return score_finer(found.evidence, best, close)
