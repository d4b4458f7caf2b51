"""Routes for the context of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field
from typing_extensions import TypedDict

from hermes.memory_server import limits
from hermes.memory_server.api import auth
from hermes.memory_server.api.auth import Caller, Member, WorkspaceCaller
from hermes.memory_server.api.bodies import Distance, JsonResponse, Limit, Message, show_message
from hermes.memory_server.api.clean import Body, Name, SearchText
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.recall import EvidenceView, checked_names, make_view, session_rows
from hermes.memory_server.api.server import Server, ServerDep
from hermes.memory_server.api.sessions import Summary, show_summary
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine.cards import read_card
from hermes.memory_server.engine.conclusions import find_collection
from hermes.memory_server.engine.context import measure_card, read_summary, share_budget
from hermes.memory_server.engine.members import MAX_ALONE_PEERS, sessions_alone
from hermes.memory_server.engine.peers import find_peer, get_peer, is_member
from hermes.memory_server.engine.recall import ConclusionChoice, View, choose, write_representation
from hermes.memory_server.engine.sessions import find_live_session
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.workspaces import get_workspace, resolve, workspace_id_of
from hermes.memory_server.faults import Invalid
from hermes.memory_server.ids import refuse_scopes

router = new_router("sessions")


class ContextView(EvidenceView):
    """The conclusions of one peer about another, limited to sessions, optionally with the observer's card."""

    session_id: Name | None = None
    alone: Annotated[list[Name], Field(min_length=1, max_length=MAX_ALONE_PEERS)] | None = None
    searched: bool = False
    max_conclusions: Limit | None = None
    card: bool = False


class ContextRead(Body):
    """The context that a conversation reads before a turn. `tokens` limits the summary."""

    session_id: Name
    tokens: Annotated[int, Field(ge=0, le=limits.CONTEXT_TOKENS)]
    search_query: SearchText | None = None
    views: Annotated[list[ContextView], Field(max_length=8)]


class SessionContext(TypedDict):
    id: str
    messages: list[Message]
    summary: Summary | None
    peer_representation: str | None
    peer_card: list[str] | None


class ViewContext(TypedDict):
    """The content of one view. `card` is null unless requested."""

    representation: str
    card: list[str] | None


class ReadContext(TypedDict):
    """The summary of a session, and the content of each view, in the order of the request."""

    summary: str | None
    views: list[ViewContext]


@dataclass(frozen=True, slots=True)
class Perspective:
    """The view that a context includes: observer, observed peer, and sessions."""

    session: str
    target: str | None
    perspective: str | None
    scope: str | None
    sessions: Sequence[str] | None

    def check(self) -> None:
        """Raise Invalid for parameters that exclude each other."""
        if self.target is None and (self.perspective or self.scope or self.sessions):
            raise Invalid("peer_perspective, scope and sessions need peer_target")
        if self.scope and self.perspective:
            raise Invalid("scope and peer_perspective exclude each other")
        if self.sessions is not None and self.session not in checked_names(self.sessions):
            raise Invalid("sessions must contain this session")


@router.get("/v3/workspaces/{workspace_id}/sessions/{session_id}/context", response_model=SessionContext)
async def get_context(
    workspace_id: str,
    session_id: str,
    here: ServerDep,
    caller: Member,
    tokens: Annotated[int | None, Query(ge=0, le=limits.CONTEXT_TOKENS)] = None,
    search_query: SearchText | None = None,
    summary: bool = True,
    peer_target: str | None = None,
    peer_perspective: str | None = None,
    scope: str | None = None,
    sessions: Annotated[list[str] | None, Query()] = None,
    limit_to_session: bool = False,
    search_top_k: Limit | None = None,
    search_max_distance: Distance | None = None,
    include_most_frequent: bool = False,
    max_conclusions: Limit | None = None,
) -> Response:
    """Return a session's summary and newest messages within a token budget, with what is known about a peer."""
    auth.require(scope is None or caller.holds(workspace_id))
    if sessions is not None and (limit_to_session or scope):
        raise Invalid("sessions excludes scope and limit_to_session")
    # Conclusions about a peer come from all sessions; a session's key sees only those from that session.
    alone = limit_to_session or (caller.only_session is not None and sessions is None)
    limited = [session_id] if alone and peer_target else sessions
    asked = Perspective(session_id, peer_target, peer_perspective, scope, limited)
    asked.check()
    await _check_key(here, caller, workspace_id, asked)
    question = await here.ask(workspace_id, search_query) if search_query else None
    choice = ConclusionChoice(question, search_top_k, search_max_distance, include_most_frequent, max_conclusions)
    budget = limits.CONTEXT_TOKENS if tokens is None else tokens
    return JsonResponse(
        await here.read(
            lambda tx: _context(tx, here.vectors, workspace_id, asked, choice, budget, with_summary=summary)
        )
    )


async def _check_key(here: Server, caller: Caller, workspace: str, asked: Perspective) -> None:
    """Check that the key permits this view. A peer's key permits that peer's views, and its view of itself, from
    sessions of which it is a member; a session's key permits that session alone."""
    me, named = caller.only_peer, asked.sessions or ()
    if caller.only_session is not None:
        auth.require(set(named) <= {caller.only_session})
    if me is not None:
        auth.require(asked.perspective == me or {asked.target, asked.perspective} <= {me, None})
        auth.require(await here.read(lambda tx: all(is_member(tx, workspace, name, me) for name in set(named))))


def _context(
    tx: Tx,
    index: VectorIndex,
    workspace: str,
    asked: Perspective,
    choice: ConclusionChoice,
    tokens: int,
    *,
    with_summary: bool,
) -> SessionContext:
    shown: SessionContext = {
        "id": asked.session,
        "messages": [],
        "summary": None,
        "peer_representation": None,
        "peer_card": None,
    }
    held: Sequence[Record] = []
    card = None
    if asked.target is not None:
        held, card = _about(tx, index, workspace, asked, choice)
    session = find_live_session(tx, workspace, asked.session)
    if session is not None:
        budget = tokens - measure_card(card)
        held, window = share_budget(tx, session, budget, held, with_summary=with_summary)
        shown["messages"] = [show_message(row) for row in window.messages]
        shown["summary"] = show_summary(window.summary)
    if asked.target is not None:
        shown["peer_representation"], shown["peer_card"] = write_representation(held), card
    return shown


def _about(
    tx: Tx, index: VectorIndex, workspace: str, asked: Perspective, choice: ConclusionChoice
) -> tuple[list[Record], list[str] | None]:
    """Return the conclusions about the target, and its card."""
    observed = get_peer(tx, workspace, asked.target or "")
    observer = get_peer(tx, workspace, asked.perspective) if asked.perspective else observed
    refuse_scopes(asked.target, asked.perspective)
    view = make_view(tx, workspace, observer.id, observed.id, asked.scope, asked.sessions)
    held = choose(tx, index, view, choice)
    # The session from which a line of a card came is unknown.
    uses_card = asked.sessions is None and resolve(get_workspace(tx, workspace).configuration).use_card
    return held, read_card(tx, view.observer, observed.id) if uses_card else None


@router.post("/v3/workspaces/{workspace_id}/ext/context", response_model=ReadContext, tags=["extensions"])
async def read_context(workspace_id: str, body: ContextRead, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return a session's summary and the content of several views in one request, without messages."""
    question = await here.ask_fast(body.search_query) if body.search_query else None

    def run(tx: Tx) -> ReadContext:
        session = find_live_session(tx, workspace_id, body.session_id)
        summary = None if session is None else read_summary(tx, session.id, body.tokens)
        views: list[ViewContext] = []
        for view in body.views:
            choice = ConclusionChoice(question if view.searched else None, max_conclusions=view.max_conclusions)
            views.append(_read_view(tx, here.vectors, workspace_id, view, choice))
        return {"summary": summary, "views": views}

    return await here.read(lambda tx: JsonResponse(run(tx)))


def _read_view(tx: Tx, index: VectorIndex, workspace: str, asked: ContextView, choice: ConclusionChoice) -> ViewContext:
    place = workspace_id_of(tx, workspace)
    observer, observed = find_peer(tx, place, asked.observer_id), find_peer(tx, place, asked.observed_id)
    if observer is None or observed is None or find_collection(tx, observer.id, observed.id) is None:
        return {"representation": "", "card": None}
    sessions = None if asked.alone is None else sessions_alone(tx, place, asked.alone)
    if asked.session_id is not None:
        here = session_rows(tx, workspace, [asked.session_id]) or ()
        sessions = here if sessions is None else tuple(set(here) & set(sessions))
    held = write_representation(choose(tx, index, View(observer.id, observed.id, sessions), choice))
    uses_card = asked.card and resolve(get_workspace(tx, workspace).configuration).use_card
    return {"representation": held, "card": read_card(tx, observer.id, observed.id) if uses_card else None}
