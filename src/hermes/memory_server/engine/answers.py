"""First answers, kept for a week: who asks again with the same key reads the first answer, and nothing is done twice.

An answer is kept in the transaction of the change that it reports. What it only repeats of the request is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, TextClause, and_, bindparam, delete, select, text

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting
from hermes.memory_server.db.tables import answers
from hermes.memory_server.faults import Invalid

KEPT = 7 * 24 * 3600 * 1_000_000
"""Microseconds that an answer is kept."""
FORGOTTEN = 1000
"""How many answers are dropped in one transaction."""
IDENTITY = ("workspace_id", "session_id", "route", "key")
SAME = tuple(answers.c[name] == bindparam(name) for name in IDENTITY)
FIND = PreparedStatement(select(answers).where(*SAME))
DROP = PreparedStatement(delete(answers).where(*SAME))
INSERT = PreparedStatement(inserting(answers))
CLONE = "route = 'clone'"
"""The condition of the partial index of copies. A query must repeat it literally, or the index is not used."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What a key stands for: a route and a digest of all that was said there."""

    route: str
    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class KeySpace:
    """Within what a key must be unique: a workspace, and for routes of a session that session."""

    workspace_id: int
    session_id: int = 0


def find_answer(tx: Tx, place: KeySpace, asked: KeyedRequest, at: int) -> Record | None:
    """The first answer, or None. Refused when the key stands for something else."""
    named = _named(place, asked)
    found = FIND.first(tx, **named)
    if found is None:
        return None
    if found.kept_at < at - KEPT:
        DROP.run(tx, **named)
        return None
    check_same(KeyedRequest(found.route, found.key, found.digest), asked)
    return found


def check_same(first: KeyedRequest | None, again: KeyedRequest) -> None:
    """Refuse a key that stands for something else already."""
    if first != again:
        raise Invalid(f"The key '{again.key[:80]}' was used with another body; use a new key for each request")


def keep_answer(tx: Tx, place: KeySpace, asked: KeyedRequest, status: int, answer: str, at: int) -> None:
    """Keep the first answer. Call it in the transaction of the change, so that there are both or neither."""
    # Of two at once, where a database lets two write at once, the second meets the row of the first and is run again.
    INSERT.run(tx, **_named(place, asked), digest=asked.digest, status=status, answer=answer, kept_at=at)


def forget_answers(tx: Tx, at: int) -> bool:
    """Drop a part of the answers that were kept long enough. Is there more to drop?"""
    return _drop_some(tx, answers.c.kept_at < at - KEPT)


def forget_session_answers(tx: Tx, workspace_id: int, name: str) -> None:
    """Drop the answers that show a session of this name, which was made or is the copy of another."""
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == "sessions", _shows(name))
    _forget_all(tx, workspace_id, text(CLONE), _shows(name))


def forget_peer_answers(tx: Tx, workspace_id: int, name: str) -> None:
    """Drop the answers that show a peer of this name, or that it is to be merged."""
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == "peers", _shows(name))
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == merge_route(name))


def forget_webhook_answers(tx: Tx, workspace_id: int, public_id: str) -> None:
    """Drop the answers that show an endpoint for events."""
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == "webhooks", _shows(public_id))


def merge_route(peer: str) -> str:
    """Where a peer is merged into another."""
    return f"peers/{peer}/merge"


def _shows(name: str) -> ColumnElement[bool]:
    """Does an answer begin with this id? In words that an index of answers fits."""
    begins = f'{{"id":"{name}",'
    return and_(answers.c.answer >= begins, answers.c.answer < begins[:-1] + "-")


def _forget_all(tx: Tx, workspace_id: int, *which: ColumnElement[bool] | TextClause) -> None:
    while _drop_some(tx, answers.c.workspace_id == workspace_id, *which):
        pass  # each time a thousand


def _drop_some(tx: Tx, *which: ColumnElement[bool] | TextClause) -> bool:
    """Drop a thousand of these answers. Is there more to drop?"""
    rows = tx.execute(select(*(answers.c[name] for name in IDENTITY)).where(*which).limit(FORGOTTEN)).all()
    DROP.run_many(tx, [row._asdict() for row in rows])
    return len(rows) == FORGOTTEN


def _named(place: KeySpace, asked: KeyedRequest) -> dict[str, int | str]:
    return dict(zip(IDENTITY, (place.workspace_id, place.session_id, asked.route, asked.key), strict=True))
