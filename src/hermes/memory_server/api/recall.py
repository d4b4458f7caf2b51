"""Parameters that recall routes share: sessions, observer, conclusions.

Routes for searches in a workspace, in a session, or in what a peer said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Response
from pydantic import Field
from sqlalchemy import select
from typing_extensions import TypedDict

from hermes.memory_server import limits, times
from hermes.memory_server.api.auth import Member, OwnPeer, WorkspaceCaller
from hermes.memory_server.api.bodies import (
    Conclusion,
    JsonResponse,
    Limit,
    Message,
    Moment,
    show_conclusion,
    show_message,
)
from hermes.memory_server.api.clean import Body, CleanText, Filters, Name, SearchText
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.server import ServerDep
from hermes.memory_server.db.database import JsonMap, Record, Tx
from hermes.memory_server.db.tables import sessions
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.conclusions import without_messages
from hermes.memory_server.engine.dialectic import MAX_DISTANCE
from hermes.memory_server.engine.members import MAX_ALONE_PEERS, sessions_alone
from hermes.memory_server.engine.peers import find_peer
from hermes.memory_server.engine.recall import View, query_views
from hermes.memory_server.engine.scopes import get_scope, get_scopes, session_ids
from hermes.memory_server.engine.search import Hit, find_hits, is_answered
from hermes.memory_server.engine.sessions import find_live_session
from hermes.memory_server.engine.standing import find_standing
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.memory_server.faults import Invalid
from hermes.memory_server.ids import NAME
from hermes.ranking.personal import expand
from hermes.ranking.scoring import RELEVANCE_THRESHOLD
from hermes.ranking.traits import is_question

SessionChoice = str | Sequence[str] | None
"""One scope, several, or none."""


def allowed_sessions(filters: JsonMap | None, session: str | None) -> Sequence[str] | None:
    """Return the sessions to which a filter limits recall, None for no limit. The filter accepts only `session_id`. A
    session that is named besides it must be one of them."""
    if filters is None:
        return None
    if set(filters) != {"session_id"}:
        raise Invalid("filters here take session_id alone")
    value = filters["session_id"]
    if isinstance(value, Mapping) and set(value) == {"in"}:
        value = value["in"]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Invalid("session_id takes an id, a list of ids or {'in': [ids]}")
    allowed = checked_names(names)
    if session is not None and session not in allowed:
        raise Invalid("session_id must be one of filters.session_id")
    return allowed


def checked_names(names: Sequence[str]) -> Sequence[str]:
    """Check that the names are valid session ids, and not too many."""
    if len(names) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"at most {limits.SESSIONS_PER_RECALL} sessions can be named")
    for name in names:
        if NAME.fullmatch(name) is None:
            raise Invalid(f"'{name}' is not a session id")
    return names


def named_sessions(filters: JsonMap | None, session: str | None) -> Sequence[str] | None:
    """Return the sessions of the filter, or the one session that is named."""
    allowed = allowed_sessions(filters, session)
    return allowed if session is None else checked_names([session])


def session_rows(tx: Tx, workspace: str, names: Sequence[str] | None) -> tuple[int, ...] | None:
    """Return the ids of these sessions. Unknown names are ignored, so a list of unknown names yields no session."""
    if names is None:
        return None
    inside = sessions.c.workspace_id == workspace_id_of(tx, workspace)
    query = select(sessions.c.id).where(inside, sessions.c.name.in_(names))
    return tuple(row.id for row in tx.execute(query.where(sessions.c.is_active.is_(True))))


def check_scope(scope: SessionChoice, filters: JsonMap | None, session: str | None) -> None:
    """Raise Invalid if a scope is combined with another choice of sessions."""
    if scope is not None and filters is not None:
        raise Invalid("scope and filters exclude each other")
    if scope is not None and session is not None:
        raise Invalid("scope and session_id exclude each other")


def scope_rows(tx: Tx, workspace: str, scope: str | Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the sessions in one or more scopes."""
    rows = session_ids(tx, get_scopes(tx, workspace, scope))
    if not isinstance(scope, str) and len(rows) > limits.SESSIONS_PER_RECALL:
        raise Invalid(f"these scopes have more than {limits.SESSIONS_PER_RECALL} sessions together")
    return rows


def make_view(
    tx: Tx, workspace: str, observer_id: int, observed_id: int, scope: SessionChoice, names: Sequence[str] | None
) -> View:
    """Return the view to recall. A single scope is the observer; with several scopes the peer observes, limited to
    their sessions. Named sessions limit all other views."""
    if scope is not None and not isinstance(scope, str):
        return View(observer_id, observed_id, scope_rows(tx, workspace, scope))
    observer = observer_id if scope is None else get_scope(tx, workspace, scope).id
    return View(observer, observed_id, session_rows(tx, workspace, names))


router = new_router()
MAX_CONCLUSIONS = 10
"""Conclusions in one evidence response."""
ROOT = "/v3/workspaces/{workspace_id}"


class MessageSearch(Body):
    """A search in messages."""

    query: SearchText
    filters: Filters | None = None
    limit: Limit = 10


class WorkspaceSearch(MessageSearch):
    """A search in a workspace, or in one of its scopes."""

    scope: CleanText | None = None


class SupersededStatement(TypedDict):
    """A statement that no longer holds, and what its speaker said instead, and when."""

    content: str
    newer: str
    newer_said_at: Moment


def _superseded(row: Record) -> SupersededStatement:
    """A statement of a message that a later one changed."""
    return {"content": row.content, "newer": row.newer_content, "newer_said_at": times.to_wire(row.newer_said_at)}


class Found(TypedDict):
    """A message that a search found. `certainty` goes from 0 to 1; `about` says whether that is enough. `superseded`
    has the statements of the message that later ones changed."""

    message: Message
    score: float
    certainty: float
    about: bool
    superseded: list[SupersededStatement]


class EvidenceView(Body):
    """The conclusions of one peer about another."""

    observer_id: Name
    observed_id: Name


class EvidenceSearch(Body):
    """A search for evidence: the query, where to search (what a peer heard, sessions in which only certain peers are,
    or one session), and the views."""

    query: CleanText
    limit: Limit = 50
    heard_by: Name | None = None
    alone: Annotated[list[Name], Field(min_length=1, max_length=MAX_ALONE_PEERS)] | None = None
    session_id: Name | None = None
    views: Annotated[list[EvidenceView], Field(max_length=4)] | None = None


class StandingConclusion(Conclusion):
    """A conclusion about a peer that always holds, with its kind."""

    kind: Literal["name", "instruction", "identity", "health", "family", "wish"]


class FoundEvidence(TypedDict):
    """Messages relevant to a question, conclusions that no message states, and conclusions that always hold, the most
    relevant first. `is_told` is false if memory probably lacks the answer to the question."""

    messages: list[Found]
    conclusions: list[Conclusion]
    standing: list[StandingConclusion]
    is_told: bool


@router.post(f"{ROOT}/search", response_model=list[Message], tags=["workspaces"])
async def search_workspace(workspace_id: str, body: WorkspaceSearch, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Search the messages of a workspace, or of one of its scopes."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[Message]:
        where = _place(tx, workspace_id, body)
        return [show_message(hit.row) for hit in find_hits(tx, here.vectors, where, question, body.filters, body.limit)]

    return await here.read(lambda tx: JsonResponse(run(tx)))


@router.post(f"{ROOT}/sessions/{{session_id}}/search", response_model=list[Message], tags=["sessions"])
async def search_session(
    workspace_id: str, session_id: str, body: MessageSearch, here: ServerDep, _: Member
) -> Response:
    """Search the messages of a session."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[Message]:
        session = find_live_session(tx, workspace_id, session_id)
        where = SearchArea(0, ()) if session is None else SearchArea(session.workspace_id, (session.id,))
        return [show_message(hit.row) for hit in find_hits(tx, here.vectors, where, question, body.filters, body.limit)]

    return await here.read(lambda tx: JsonResponse(run(tx)))


@router.post(f"{ROOT}/peers/{{peer_id}}/search", response_model=list[Message], tags=["peers"])
async def search_peer(workspace_id: str, peer_id: str, body: MessageSearch, here: ServerDep, _: OwnPeer) -> Response:
    """Search the messages of a peer."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[Message]:
        place = workspace_id_of(tx, workspace_id)
        author = find_peer(tx, place, peer_id)
        where = SearchArea(place, ()) if author is None else SearchArea(place, peer=author.id)
        return [show_message(hit.row) for hit in find_hits(tx, here.vectors, where, question, body.filters, body.limit)]

    return await here.read(lambda tx: JsonResponse(run(tx)))


@router.post(f"{ROOT}/ext/search", response_model=list[Found], tags=["extensions"])
async def search_with_scores(workspace_id: str, body: WorkspaceSearch, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Search the messages of a workspace; return each with its score and the certainty that it is about the query."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[Found]:
        hits = find_hits(tx, here.vectors, _place(tx, workspace_id, body), question, body.filters, body.limit)
        return [_found(hit) for hit in hits]

    return await here.read(lambda tx: JsonResponse(run(tx)))


@router.post(f"{ROOT}/ext/evidence", response_model=FoundEvidence, tags=["extensions"])
async def find_evidence(workspace_id: str, body: EvidenceSearch, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return messages and conclusions about a question, with scores, and the conclusions that always hold, in one
    request."""
    today = datetime.fromtimestamp(here.now() / 1_000_000, UTC)
    question = await here.ask_fast(expand(body.query, today))
    filters = None if body.heard_by is None else {"peer_perspective": body.heard_by}

    def run(tx: Tx) -> FoundEvidence:
        place = workspace_id_of(tx, workspace_id)
        sessions = _evidence_sessions(tx, workspace_id, place, body)
        hits = find_hits(tx, here.vectors, SearchArea(place, sessions), question, filters, body.limit)
        held = [
            View(observer.id, observed.id, sessions if body.session_id is not None else None)
            for view in body.views or ()
            if (observer := find_peer(tx, place, view.observer_id)) is not None
            and (observed := find_peer(tx, place, view.observed_id)) is not None
        ]
        concluded = query_views(
            tx, here.vectors, held, question, MAX_CONCLUSIONS, MAX_DISTANCE, least=RELEVANCE_THRESHOLD, read=False
        )
        return {
            "messages": [_found(hit) for hit in hits],
            "conclusions": [show_conclusion(row) for row in without_messages(tx, concluded)],
            "standing": [{**show_conclusion(row), "kind": row.standing} for row in find_standing(tx, held)],
            "is_told": not is_question(body.query) or is_answered(question, hits),
        }

    return await here.read(lambda tx: JsonResponse(run(tx)))


def _evidence_sessions(tx: Tx, workspace: str, place: int, body: EvidenceSearch) -> tuple[int, ...] | None:
    """Return the sessions that evidence may come from; None for all."""
    found = None if body.session_id is None else session_rows(tx, workspace, [body.session_id])
    if body.alone is None:
        return found
    alone = sessions_alone(tx, place, body.alone)
    return alone if found is None else tuple(set(found) & set(alone))


def _found(hit: Hit) -> Found:
    return {
        "message": show_message(hit.row),
        "score": hit.score,
        "certainty": hit.certainty,
        "about": hit.is_about,
        "superseded": [_superseded(row) for row in hit.changes],
    }


def _place(tx: Tx, workspace: str, body: WorkspaceSearch) -> SearchArea:
    found = workspace_id_of(tx, workspace)
    sessions = None if body.scope is None else session_ids(tx, get_scopes(tx, workspace, body.scope))
    return SearchArea(found, sessions if found else ())
