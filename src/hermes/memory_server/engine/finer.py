"""Vectors of a second embedder, which is better and slower: computed in the background, and used to reorder the best
candidates.

Each vector names its space. Vectors of another space than the question's are ignored, so that two models are never
compared, not even while one replaces the other.
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

CHOSEN_SPACE_KEY = "finer_embedder"
"""The key in `meta` of the space that was chosen last, which is being filled."""
MAX_REFINED_CANDIDATES = 150
"""The number of best candidates that are reordered."""
MAX_ATTEMPTS = 10
"""The number of failures, each in a separate batch, after which a message is skipped until the next start."""
MAX_COUNTED_MESSAGES = 10_000
"""Waiting messages are counted up to this number."""


def _is_there(table: FromClause) -> ColumnElement[bool]:
    """Return the condition, on `messages` or an alias of it, that session and author are not deleted. It covers
    workspaces too: a deleted one has only deleted sessions.
    """
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
    .where(finer_again.c.failures < MAX_ATTEMPTS, _is_there(messages))
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
"""SQL condition: a message answers the one before it, which helps to understand it."""
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
SAID = PreparedStatement(select(meta.c.value).where(meta.c.name == CHOSEN_SPACE_KEY))
INSERT = PreparedStatement(inserting(finer_vectors))
LEAVE = PreparedStatement(inserting_new(finer_again, "workspace_id", "message_id", "failures"))
Made = tuple[int, int, bytes]
"""A vector: its message id, its piece number and its bytes."""


@dataclass(frozen=True, slots=True)
class MessagePair:
    """A message, and the one before it in its session if another peer wrote that."""

    id: int
    text: str
    before_id: int | None
    before: str | None


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """Messages of one workspace without vectors, the oldest first."""

    workspace_id: int
    upto: int | None
    """The id after which the batch begins, without a gap; None for messages that were skipped earlier."""
    messages: Sequence[MessagePair]
    failures: int = 0
    """The number of times that each of them failed."""


def choose_space(tx: Tx, space: str) -> None:
    """Choose the space to fill. Messages that failed are tried again."""
    tx.execute(update(finer_again).where(finer_again.c.failures > 0).values(failures=0))
    upsert(tx, meta, ("name",), {"name": CHOSEN_SPACE_KEY, "value": space})


def chosen_space(tx: Tx) -> str | None:
    found = SAID.first(tx)
    return None if found is None else str(found.value)


def next_batch(tx: Tx, space: str, most: int) -> EmbeddingBatch | None:
    """Return the next messages to embed: new ones first, then those to embed again; None if nothing is left."""
    behind = BEHIND.first(tx, space=space)
    if behind is None:
        return _next_retry(tx, most)
    rows = NEXT.rows(tx, workspace_id=behind.id, upto=behind.upto, most=most)
    return EmbeddingBatch(behind.id, behind.upto, [MessagePair(*row) for row in rows])


def _next_retry(tx: Tx, most: int) -> EmbeddingBatch | None:
    rows = AGAIN.rows(tx, most=most)
    if not rows:
        return None
    first = rows[0]
    ids = [row.message_id for row in rows if (row.workspace_id, row.failures) == (first.workspace_id, first.failures)]
    found = tx.execute(WITH_BEFORE.where(messages.c.id.in_(ids)).order_by(messages.c.id)).all()
    return EmbeddingBatch(first.workspace_id, None, [MessagePair(*row) for row in found], first.failures)


def store_batch(tx: Tx, space: str, batch: EmbeddingBatch, vectors: Sequence[Made], failures: int) -> None:
    """Store the vectors of a batch in place of older ones; messages without a vector get this failure count.

    Nothing is stored if it became useless: another space was chosen, another process was faster, or one of the
    messages used was deleted.
    """
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
    """Delete the vectors that are about to lose a message: the messages' own, and those of the messages after them,
    which are embedded again unless the session is deleted. Call it before the messages are deleted.
    """
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
    """Return the number of messages without a vector of this space, counted up to MAX_COUNTED_MESSAGES."""
    new = (
        select(messages.c.id)
        .select_from(WITH_PROGRESS.join(messages, messages.c.workspace_id == workspaces.c.id))
        .where(messages.c.id > func.coalesce(UPTO, 0), _is_there(messages))
    )
    counts = (select(func.count()).select_from(some.limit(MAX_COUNTED_MESSAGES).subquery()) for some in (new, WAITING))
    return min(MAX_COUNTED_MESSAGES, sum(int(tx.execute(count, {"space": space}).scalar_one()) for count in counts))


def count_refused(tx: Tx) -> int:
    """Return the number of messages that are skipped because the embedder failed on them, up to
    MAX_COUNTED_MESSAGES.
    """
    refused = select(finer_again.c.message_id).where(finer_again.c.failures >= MAX_ATTEMPTS).limit(MAX_COUNTED_MESSAGES)
    return int(tx.execute(select(func.count()).select_from(refused.subquery())).scalar_one())


def find_directions(tx: Tx, workspace_id: int, finer: Finer, ids: Sequence[int]) -> dict[int, Vector]:
    """Return the vectors of the messages' first pieces, for messages that have one in the space of the question."""
    own = (finer_vectors.c.workspace_id == workspace_id, finer_vectors.c.space == finer.space)
    query = select(finer_vectors.c.message_id, finer_vectors.c.vector).where(*own, finer_vectors.c.piece == 0)
    rows = tx.execute(query.where(finer_vectors.c.message_id.in_(ids))).all() if ids else []
    vectors = from_blobs([row.vector for row in rows], len(finer.vector))
    return {row.message_id: vector for row, vector in zip(rows, vectors, strict=True) if vector.any()}


def find_conclusion_directions(tx: Tx, workspace_id: int, finer: Finer, ids: Sequence[int]) -> dict[int, Vector]:
    """Return for each conclusion the vector, among the pieces of its source messages, that is closest to the
    question.
    """
    read = conclusion_messages.join(finer_vectors, conclusion_messages.c.message_id == finer_vectors.c.message_id)
    own = (finer_vectors.c.workspace_id == workspace_id, finer_vectors.c.space == finer.space)
    query = select(conclusion_messages.c.conclusion_id, finer_vectors.c.vector).select_from(read).where(*own)
    rows = tx.execute(query.where(conclusion_messages.c.conclusion_id.in_(ids))).all() if ids else []
    vectors = from_blobs([row.vector for row in rows], len(finer.vector))
    closest = np.argsort(vectors @ finer.vector, kind="stable")  # the last vector of a conclusion wins
    return {rows[at].conclusion_id: vectors[at] for at in closest.tolist() if vectors[at].any()}


def closeness(tx: Tx, workspace_id: int, finer: Finer, ids: Sequence[int]) -> Floats:
    """Return the closeness of each message, by its closest piece; NaN for a message without a usable vector of the
    space.
    """
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


def refined(tx: Tx, workspace_id: int, found: Candidates, scores: Floats, finer: Finer, *, names_one: bool) -> Floats:
    """Return the scores, adjusted by the second embedder's vectors of the best candidates where there are any.

    `names_one` tells that the question names a peer.
    """
    best = np.argsort(-scores)[:MAX_REFINED_CANDIDATES]
    close = closeness(tx, workspace_id, finer, found.ids[best].tolist())
    return score_finer(found.evidence, best, close, names_one=names_one)
