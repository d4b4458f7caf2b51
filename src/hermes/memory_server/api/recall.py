"""Parameters that recall routes share: sessions, observer, conclusions.

Routes for searches in a workspace, in a session, or in what a peer said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fastapi import Response
from sqlalchemy import select

from hermes.memory_server import limits
from hermes.memory_server.api import replies, wire
from hermes.memory_server.api.auth import Member, OwnPeer, WorkspaceCaller
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.schemas import EvidenceSearch, MessageSearch, WorkspaceSearch
from hermes.memory_server.api.server import ServerDep
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.db.tables import sessions
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.conclusions import without_messages
from hermes.memory_server.engine.dialectic import MAX_DISTANCE
from hermes.memory_server.engine.members import sessions_alone
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


@router.post(f"{ROOT}/search", response_model=list[replies.Message], tags=["workspaces"])
async def search_workspace(workspace_id: str, body: WorkspaceSearch, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Search the messages of a workspace, or of one of its scopes."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[wire.WireObject]:
        where = _place(tx, workspace_id, body)
        return [wire.message(hit.row) for hit in find_hits(tx, here.vectors, where, question, body.filters, body.limit)]

    return await here.read(lambda tx: wire.JsonResponse(run(tx)))


@router.post(f"{ROOT}/sessions/{{session_id}}/search", response_model=list[replies.Message], tags=["sessions"])
async def search_session(
    workspace_id: str, session_id: str, body: MessageSearch, here: ServerDep, _: Member
) -> Response:
    """Search the messages of a session."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[wire.WireObject]:
        session = find_live_session(tx, workspace_id, session_id)
        where = SearchArea(0, ()) if session is None else SearchArea(session.workspace_id, (session.id,))
        return [wire.message(hit.row) for hit in find_hits(tx, here.vectors, where, question, body.filters, body.limit)]

    return await here.read(lambda tx: wire.JsonResponse(run(tx)))


@router.post(f"{ROOT}/peers/{{peer_id}}/search", response_model=list[replies.Message], tags=["peers"])
async def search_peer(workspace_id: str, peer_id: str, body: MessageSearch, here: ServerDep, _: OwnPeer) -> Response:
    """Search the messages of a peer."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[wire.WireObject]:
        place = workspace_id_of(tx, workspace_id)
        author = find_peer(tx, place, peer_id)
        where = SearchArea(place, ()) if author is None else SearchArea(place, peer=author.id)
        return [wire.message(hit.row) for hit in find_hits(tx, here.vectors, where, question, body.filters, body.limit)]

    return await here.read(lambda tx: wire.JsonResponse(run(tx)))


@router.post(f"{ROOT}/ext/search", response_model=list[replies.Found], tags=["extensions"])
async def search_with_scores(workspace_id: str, body: WorkspaceSearch, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Search the messages of a workspace; return each with its score and the certainty that it is about the query."""
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[wire.WireObject]:
        hits = find_hits(tx, here.vectors, _place(tx, workspace_id, body), question, body.filters, body.limit)
        return [_found(hit) for hit in hits]

    return await here.read(lambda tx: wire.JsonResponse(run(tx)))


@router.post(f"{ROOT}/ext/evidence", response_model=replies.FoundEvidence, tags=["extensions"])
async def find_evidence(workspace_id: str, body: EvidenceSearch, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return messages and conclusions about a question, with scores, and the conclusions that always hold, in one
    request."""
    today = datetime.fromtimestamp(here.now() / 1_000_000, UTC)
    question = await here.ask_fast(expand(body.query, today))
    filters = None if body.heard_by is None else {"peer_perspective": body.heard_by}

    def run(tx: Tx) -> wire.WireObject:
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
            "conclusions": [wire.conclusion(row) for row in without_messages(tx, concluded)],
            "standing": [wire.conclusion(row) | {"kind": row.standing} for row in find_standing(tx, held)],
            "is_told": not is_question(body.query) or is_answered(question, hits),
        }

    return await here.read(lambda tx: wire.JsonResponse(run(tx)))


def _evidence_sessions(tx: Tx, workspace: str, place: int, body: EvidenceSearch) -> tuple[int, ...] | None:
    """Return the sessions that evidence may come from; None for all."""
    found = None if body.session_id is None else session_rows(tx, workspace, [body.session_id])
    if body.alone is None:
        return found
    alone = sessions_alone(tx, place, body.alone)
    return alone if found is None else tuple(set(found) & set(alone))


def _found(hit: Hit) -> wire.WireObject:
    return {
        "message": wire.message(hit.row),
        "score": hit.score,
        "certainty": hit.certainty,
        "about": hit.is_about,
        "superseded": [wire.superseded(row) for row in hit.changes],
    }


def _place(tx: Tx, workspace: str, body: WorkspaceSearch) -> SearchArea:
    found = workspace_id_of(tx, workspace)
    sessions = None if body.scope is None else session_ids(tx, get_scopes(tx, workspace, body.scope))
    return SearchArea(found, sessions if found else ())
