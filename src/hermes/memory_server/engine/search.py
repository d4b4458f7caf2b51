"""Search in messages: by words (full text) and by meaning (vectors), fused by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, and_, bindparam, exists, or_, select, true

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import Prepared
from hermes.memory_server.db.tables import memberships, messages, peers, sessions
from hermes.memory_server.db.text_index import Ids, Place
from hermes.memory_server.embedder import Question, Vector
from hermes.memory_server.engine.allowed import Allowed
from hermes.memory_server.engine.filters import build_filter
from hermes.memory_server.engine.messages import FIELDS, find_messages
from hermes.memory_server.engine.narrowing import named, narrow, rows_named
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.words import find_by_words
from hermes.memory_server.faults import Invalid

RANK_OFFSET = 60
"""How little the first ranks differ from each other when two lists are fused."""
LOOKED_AT = 5000
"""How many of the closest are asked about, before it is found out for all messages whether they are allowed."""
NOBODY = 0
"""The author of no message."""
DELETED = Prepared(
    select(sessions.c.id)
    .where(sessions.c.workspace_id == bindparam("workspace_id"), sessions.c.is_active.is_(False))
    .limit(1)
)
"""Sessions that are not shown: deleted and not yet removed, or copies that are not whole. Mostly there are none."""


def search_messages(
    tx: Tx, index: VectorIndex, place: Place, question: Question, filters: Mapping[str, Any] | None, limit: int
) -> list[Record]:
    """The messages that fit best, the best first."""
    condition = search_condition(tx, place.workspace_id, filters)
    where = _place_within(tx, place, filters or {})
    if where.sessions == () or where.peer == NOBODY:
        return []
    hides = DELETED.first(tx, workspace_id=place.workspace_id) is not None
    if condition is None:
        ids = _ranked(tx, index, where, question, None, 2 * limit if hides else limit)
        shown = [row for row in find_messages(tx, ids) if row.is_shown]
        if len(shown) >= limit or len(shown) == len(ids):
            return shown[:limit]
        condition = true()
    allowed = Allowed(tx, where, and_(condition, sessions.c.is_active.is_(True)), narrow(tx, where, filters or {}))
    if allowed.known is not None and not len(allowed.known):
        return []
    return find_messages(tx, _ranked(tx, index, where, question, allowed, limit))


def _ranked(
    tx: Tx, index: VectorIndex, place: Place, question: Question, allowed: Allowed | None, limit: int
) -> list[int]:
    by_words = find_by_words(tx, place, question.text, allowed, limit * 2)
    by_meaning = _by_meaning(tx, index, place, question.vector, allowed, limit * 2)
    return fuse(by_words, by_meaning)[:limit]


def _place_within(tx: Tx, place: Place, filters: Mapping[str, Any]) -> Place:
    """The part of the place that a filter leaves when it names sessions or one author."""
    sessions_, peer = place.sessions, place.peer
    if (names := named(filters.get("session_id"))) is not None:
        found = rows_named(tx, sessions, place.workspace_id, names)
        sessions_ = tuple(found if sessions_ is None else set(found) & set(sessions_))
    if (names := named(filters.get("peer_id"))) is not None and len(set(names)) == 1:
        author = next(iter(rows_named(tx, peers, place.workspace_id, names)), NOBODY)
        peer = author if peer in (None, author) else NOBODY
    return Place(place.workspace_id, sessions_, peer)


def fuse(*ranked: Sequence[int]) -> list[int]:
    """Several rankings as one: who stands high in many stands highest."""
    scores: dict[int, float] = {}
    for ids in ranked:
        for rank, found in enumerate(ids, start=1):
            scores[found] = scores.get(found, 0.0) + 1.0 / (RANK_OFFSET + rank)
    return sorted(scores, key=lambda found: (-scores[found], -found))


def search_condition(tx: Tx, workspace_id: int, filters: Mapping[str, Any] | None) -> ColumnElement[bool] | None:
    """What a search's filter means; None when it says nothing."""
    given = dict(filters or {})
    perspective = given.pop("peer_perspective", None)
    parts = [build_filter(given, FIELDS)] if given else []
    if perspective is not None:
        parts.append(_seen_by(tx, workspace_id, perspective))
    return and_(true(), *parts) if parts else None


def _seen_by(tx: Tx, workspace_id: int, peer: Any) -> ColumnElement[bool]:
    """Messages, whoever wrote them, that came while the peer was in their session."""
    if not isinstance(peer, str):
        raise Invalid("peer_perspective takes the id of a peer")
    found = find_peer(tx, workspace_id, peer)
    stay = (
        memberships.c.peer_id == (found.id if found is not None else 0),
        memberships.c.session_id == messages.c.session_id,
        memberships.c.joined_seq < messages.c.seq,
        or_(memberships.c.left_seq.is_(None), memberships.c.left_seq >= messages.c.seq),
    )
    return exists().where(*stay)


def _by_meaning(
    tx: Tx, index: VectorIndex, place: Place, vector: Vector, allowed: Allowed | None, limit: int
) -> list[int]:
    if not vector.any():
        return []

    def nearest(wanted: int, among: Ids | None = None) -> list[int]:
        hits = index.nearest_messages(
            tx, place.workspace_id, vector, wanted, sessions=place.sessions, peer=place.peer, among=among
        )
        return [message_id for message_id, _ in hits]

    if allowed is None:
        return nearest(limit)
    wanted = limit
    while allowed.known is None and wanted <= LOOKED_AT:
        ids = nearest(wanted)
        kept: list[int] = allowed.keep(tx, np.array(ids, dtype=np.int64)).tolist()
        if len(kept) >= limit or len(ids) < wanted:
            return kept[:limit]
        wanted *= 8
    return nearest(limit, allowed.all(tx))
