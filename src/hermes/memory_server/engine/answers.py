"""Stored responses: a request repeated with the same idempotency key gets the first response, and nothing is done
twice.

A response is stored in the transaction of the change that it reports, without the parts that repeat the request.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, TextClause, and_, bindparam, delete, select, text

from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.statements import PreparedStatement, inserting
from hermes.memory_server.db.tables import answers
from hermes.memory_server.faults import Invalid

ANSWER_LIFETIME_MICROSECONDS = 7 * 24 * 3600 * 1_000_000
"""How long a response is kept: a week."""
ANSWERS_PER_TRANSACTION = 1000
"""The number of responses that one transaction deletes."""
IDENTITY = ("workspace_id", "session_id", "route", "key")
SAME = tuple(answers.c[name] == bindparam(name) for name in IDENTITY)
FIND = PreparedStatement(select(answers).where(*SAME))
DROP = PreparedStatement(delete(answers).where(*SAME))
INSERT = PreparedStatement(inserting(answers))
CLONE = "route = 'clone'"
"""The condition of the partial index of clones. A query must repeat it literally, or the index is not used."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key: its route, and a digest of its body."""

    route: str
    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The space in which a key is unique: a workspace, or one session for the routes of a session."""

    workspace_id: int
    session_id: int = 0


def find_answer(tx: Tx, place: KeySpace, asked: KeyedRequest, at: int) -> Record | None:
    """Return the stored response, or None. Raise Invalid if the key was used for another request."""
    named = _named(place, asked)
    found = FIND.first(tx, **named)
    if found is None:
        return None
    if found.kept_at < at - ANSWER_LIFETIME_MICROSECONDS:
        DROP.run(tx, **named)
        return None
    check_same(KeyedRequest(found.route, found.key, found.digest), asked)
    return found


def check_same(first: KeyedRequest | None, again: KeyedRequest) -> None:
    """Raise Invalid if the key was used for another request."""
    if first != again:
        raise Invalid(f"The key '{again.key[:80]}' was used with another body; use a new key for each request")


def keep_answer(tx: Tx, place: KeySpace, asked: KeyedRequest, status: int, answer: str, at: int) -> None:
    """Store the first response. Call it in the transaction of the change, so that either both are stored or neither."""
    # PostgreSQL may run two of these at once: the second finds the row of the first, and its transaction is retried.
    INSERT.run(tx, **_named(place, asked), digest=asked.digest, status=status, answer=answer, kept_at=at)


def forget_answers(tx: Tx, at: int) -> bool:
    """Delete some expired responses. Return True if more are left."""
    return _drop_some(tx, answers.c.kept_at < at - ANSWER_LIFETIME_MICROSECONDS)


def forget_session_answers(tx: Tx, workspace_id: int, name: str) -> None:
    """Delete the responses that show a session of this name, whether it was created or cloned."""
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == "sessions", _shows(name))
    _forget_all(tx, workspace_id, text(CLONE), _shows(name))


def forget_peer_answers(tx: Tx, workspace_id: int, name: str) -> None:
    """Delete the responses that show a peer of this name, or that report its merge."""
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == "peers", _shows(name))
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == merge_route(name))


def forget_webhook_answers(tx: Tx, workspace_id: int, public_id: str) -> None:
    """Delete the responses that show a webhook endpoint."""
    _forget_all(tx, workspace_id, answers.c.session_id == 0, answers.c.route == "webhooks", _shows(public_id))


def merge_route(peer: str) -> str:
    """Return the route that merges this peer into another."""
    return f"peers/{peer}/merge"


def _shows(name: str) -> ColumnElement[bool]:
    """Return the condition "the response begins with this id", written as a range so that an index applies."""
    begins = f'{{"id":"{name}",'
    return and_(answers.c.answer >= begins, answers.c.answer < begins[:-1] + "-")


def _forget_all(tx: Tx, workspace_id: int, *which: ColumnElement[bool] | TextClause) -> None:
    while _drop_some(tx, answers.c.workspace_id == workspace_id, *which):
        pass  # a transaction's share each time


def _drop_some(tx: Tx, *which: ColumnElement[bool] | TextClause) -> bool:
    """Delete a bounded number of these responses. Return True if more are left."""
    rows = tx.execute(
        select(*(answers.c[name] for name in IDENTITY)).where(*which).limit(ANSWERS_PER_TRANSACTION)
    ).all()
    DROP.run_many(tx, [row._asdict() for row in rows])
    return len(rows) == ANSWERS_PER_TRANSACTION


def _named(place: KeySpace, asked: KeyedRequest) -> dict[str, int | str]:
    return dict(zip(IDENTITY, (place.workspace_id, place.session_id, asked.route, asked.key), strict=True))
