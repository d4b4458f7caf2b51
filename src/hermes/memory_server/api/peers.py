"""Routes for peers: the peers themselves, their sessions, search, and what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import FailFast, Field
from typing_extensions import TypedDict

from hermes.memory_server import limits
from hermes.memory_server.api import auth
from hermes.memory_server.api.auth import AnyKey, OwnPeer, WorkspaceCaller
from hermes.memory_server.api.bodies import (
    Distance,
    Filter,
    Identity,
    JsonResponse,
    Limit,
    Page,
    Peer,
    ScopeNames,
    Session,
    show_page,
    show_peer,
    show_session,
)
from hermes.memory_server.api.clean import Body, CleanText, Filters, Metadata, ScopeName, SearchText
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.recall import check_scope, make_view, named_sessions
from hermes.memory_server.api.server import Paging, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine import peers as engine
from hermes.memory_server.engine.cards import read_card, write_card
from hermes.memory_server.engine.peers import find_peer, get_peer
from hermes.memory_server.engine.recall import ConclusionChoice, View, choose, write_representation
from hermes.memory_server.engine.scopes import get_scope
from hermes.memory_server.engine.sessions import find_live_session, list_sessions_of
from hermes.memory_server.engine.workspaces import get_workspace, resolve, workspace_id_of
from hermes.memory_server.ids import SCOPE_PREFIX, refuse_scopes

router = new_router("peers")
ROOT = "/v3/workspaces/{workspace_id}/peers"
PEER = f"{ROOT}/{{peer_id}}"


class PeerFilter(Filter):
    """A filter for a list of peers."""

    kind: Literal["scope", "all"] | None = None


class PeerCreate(Body):
    """A peer to get or create."""

    id: Identity
    metadata: Metadata | None = None
    configuration: Metadata | None = None


class PeerUpdate(Body):
    """Changes to a peer."""

    metadata: Metadata | None = None
    configuration: Metadata | None = None


class PeerCardSet(Body):
    """The lines of a card."""

    peer_card: Annotated[list[CleanText], FailFast(), Field(max_length=limits.CARD_LINES)]


class PeerCard(TypedDict):
    peer_card: list[str] | None


class RepresentationGet(Body):
    """A request for a representation; its fields choose the conclusions."""

    session_id: CleanText | None = None
    filters: Filters | None = None
    scope: ScopeName | ScopeNames | None = None
    target: CleanText | None = None
    search_query: SearchText | None = None
    search_top_k: Limit | None = None
    search_max_distance: Distance | None = None
    include_most_frequent: bool | None = None
    max_conclusions: Limit | None = 25


class RepresentationResponse(TypedDict):
    representation: str


class PeerContext(TypedDict):
    peer_id: str
    target_id: str
    representation: str | None
    peer_card: list[str] | None


@router.post(ROOT, response_model=Peer, responses={201: {"model": Peer}})
async def get_or_create_peer(
    workspace_id: str, body: PeerCreate, here: ServerDep, caller: AnyKey, idempotency_key: KeyHeader = None
) -> Response:
    """Get or create a peer; given metadata and configuration replace the old ones. A session's key gets members,
    creates missing ones, and changes nothing."""
    own = caller.workspace == workspace_id and caller.session is None and caller.peer == body.id
    session = caller.only_session
    auth.require(
        caller.holds(workspace_id)
        or own
        or (session is not None and body.metadata is None and body.configuration is None)
    )

    def run(tx: Tx) -> KeptAnswer:
        if session is not None:
            auth.require(_may_get(tx, workspace_id, session, body.id))
        row, made = engine.ensure_peer(tx, workspace_id, body.id, here.now(), body.metadata, body.configuration)
        return KeptAnswer.of(show_peer(row), 201 if made else 200)

    said = (
        body if session is None else (body, session)
    )  # the response to another key may hold more than this one permits
    return await Once(here, asked("peers", idempotency_key, said), workspace_id).write(run)


def _may_get(tx: Tx, workspace: str, session: str, peer: str) -> bool:
    """Return True for a member of the session, which its key may list anyway, and for a peer that does not exist
    yet."""
    if find_peer(tx, workspace_id_of(tx, workspace), peer) is None:
        return True
    return find_live_session(tx, workspace, session) is not None and engine.is_member(tx, workspace, session, peer)


@router.post(f"{ROOT}/list", response_model=Page[Peer])
async def list_peers(
    workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller, body: PeerFilter | None = None
) -> Response:
    """List the peers of a workspace."""
    asked = body or PeerFilter()
    found = await here.read(lambda tx: engine.list_peers(tx, workspace_id, asked.filters, asked.kind, page))
    return show_page(found, show_peer)


@router.put(PEER, response_model=Peer)
async def update_peer(workspace_id: str, peer_id: str, body: PeerUpdate, here: ServerDep, _: OwnPeer) -> Response:
    """Replace the metadata or configuration of a peer."""
    row, _made = await here.write(
        lambda tx: engine.ensure_peer(tx, workspace_id, peer_id, here.now(), body.metadata, body.configuration)
    )
    return JsonResponse(show_peer(row))


@router.post(f"{PEER}/sessions", response_model=Page[Session])
async def list_peer_sessions(
    workspace_id: str, peer_id: str, here: ServerDep, page: Paging, caller: OwnPeer, body: Filter | None = None
) -> Response:
    """List the sessions of a peer, present and past; with the peer's own key, only those of which it is a member
    now."""
    filters = body.filters if body else None
    now = caller.only_peer is not None
    found = await here.read(lambda tx: list_sessions_of(tx, workspace_id, peer_id, filters, page, is_in_now=now))
    return show_page(found, show_session)


@router.post(f"{PEER}/representation", response_model=RepresentationResponse)
async def get_representation(
    workspace_id: str, peer_id: str, body: RepresentationGet, here: ServerDep, caller: OwnPeer
) -> Response:
    """Return what is known about a peer, as text; empty if nothing is known."""
    auth.require(body.scope is None or caller.holds(workspace_id))
    refuse_scopes(peer_id, body.target)
    check_scope(body.scope, body.filters, body.session_id)
    names = named_sessions(body.filters, body.session_id)
    question = await here.ask(workspace_id, body.search_query) if body.search_query else None
    frequent = bool(body.include_most_frequent)
    choice = ConclusionChoice(question, body.search_top_k, body.search_max_distance, frequent, body.max_conclusions)

    def run(tx: Tx) -> str:
        view = _view(tx, workspace_id, peer_id, body.target, body.scope, names)
        return "" if view is None else write_representation(choose(tx, here.vectors, view, choice))

    return JsonResponse(RepresentationResponse(representation=await here.read(run)))


def _view(
    tx: Tx, workspace: str, peer: str, target: str | None, scope: Any, names: Sequence[str] | None
) -> View | None:
    """Return the view of the observer on the observed peer; None if one of them is unknown."""
    place = workspace_id_of(tx, workspace)
    observer, observed = find_peer(tx, place, peer), find_peer(tx, place, target or peer)
    view = make_view(tx, workspace, observer.id if observer else 0, observed.id if observed else 0, scope, names)
    return view if observed is not None and (observer is not None or isinstance(scope, str)) else None


@router.get(f"{PEER}/card", response_model=PeerCard)
async def get_card(workspace_id: str, peer_id: str, here: ServerDep, _: OwnPeer, target: str | None = None) -> Response:
    """Return the card that the peer, or a scope, holds about itself or a target."""
    refuse_scopes(target)

    def run(tx: Tx) -> list[str] | None:
        observer = get_peer(tx, workspace_id, peer_id)
        observed = find_peer(tx, observer.workspace_id, target) if target else observer
        return None if observed is None else read_card(tx, observer.id, observed.id)

    return JsonResponse(PeerCard(peer_card=await here.read(run)))


@router.put(f"{PEER}/card", response_model=PeerCard)
async def set_card(
    workspace_id: str, peer_id: str, body: PeerCardSet, here: ServerDep, _: OwnPeer, target: str | None = None
) -> Response:
    """Replace a card. Missing peers are created."""
    refuse_scopes(target)

    def run(tx: Tx) -> None:
        at = here.now()
        observer = _observer(tx, workspace_id, peer_id, at)
        observed = _observer(tx, workspace_id, target, at) if target else observer
        write_card(tx, observer.workspace_id, observer.id, observed.id, body.peer_card, at, written_by="person")

    await here.write(run)
    return JsonResponse(PeerCard(peer_card=body.peer_card))


def _observer(tx: Tx, workspace: str, name: str, at: int) -> Record:
    """Return the holder of a card: an existing scope, or a peer, which is created if missing."""
    if name.startswith(SCOPE_PREFIX):
        return get_scope(tx, workspace, name.removeprefix(SCOPE_PREFIX))
    return engine.ensure_peer(tx, workspace, name, at)[0]


@router.get(f"{PEER}/context", response_model=PeerContext)
async def get_peer_context(
    workspace_id: str,
    peer_id: str,
    here: ServerDep,
    _: OwnPeer,
    target: str | None = None,
    search_query: SearchText | None = None,
    search_top_k: Limit | None = None,
    search_max_distance: Distance | None = None,
    include_most_frequent: bool = True,
    max_conclusions: Limit | None = None,
) -> Response:
    """Return representation and card together; empty for an unknown target."""
    refuse_scopes(peer_id, target)
    question = await here.ask(workspace_id, search_query) if search_query else None
    choice = ConclusionChoice(question, search_top_k, search_max_distance, include_most_frequent, max_conclusions)

    def run(tx: Tx) -> PeerContext:
        observer = get_peer(tx, workspace_id, peer_id)
        shown: PeerContext = {
            "peer_id": peer_id,
            "target_id": target or peer_id,
            "representation": "",
            "peer_card": None,
        }
        observed = find_peer(tx, observer.workspace_id, target) if target else observer
        if observed is None:
            return shown
        rows = choose(tx, here.vectors, View(observer.id, observed.id), choice)
        uses_card = resolve(get_workspace(tx, workspace_id).configuration).use_card
        shown["representation"] = write_representation(rows)
        shown["peer_card"] = read_card(tx, observer.id, observed.id) if uses_card else None
        return shown

    return JsonResponse(await here.read(run))
