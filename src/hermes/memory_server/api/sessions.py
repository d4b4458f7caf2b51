"""Routes for sessions: the sessions themselves, their members, summaries and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Body as WholeBody
from fastapi import Response
from pydantic import AliasChoices, BeforeValidator, Field
from sqlalchemy import Row
from typing_extensions import TypedDict

from hermes.errors import StoreError
from hermes.memory_server import limits, times
from hermes.memory_server.api import auth
from hermes.memory_server.api.auth import AnyKey, Caller, Member, OwnSession, WorkspaceCaller
from hermes.memory_server.api.bodies import (
    AcceptedResponse,
    CleanConfiguration,
    Filter,
    Identity,
    JsonResponse,
    Page,
    Peer,
    Session,
    show_page,
    show_peer,
    show_session,
)
from hermes.memory_server.api.clean import Body, Metadata, Name, ScopeName, TextList, check_members
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.server import ForwardPaging, Paging, Server, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine import members
from hermes.memory_server.engine import sessions as engine
from hermes.memory_server.engine.clone import abandon_clone, begin_clone, copy_part, finish_clone
from hermes.memory_server.engine.deletion import delete_session
from hermes.memory_server.engine.members import Observation
from hermes.memory_server.engine.peers import is_member, list_members
from hermes.memory_server.engine.scopes import add_sessions, ensure_scope
from hermes.memory_server.engine.summaries import TYPES, read_summaries
from hermes.memory_server.engine.workspaces import find_workspace
from hermes.memory_server.faults import Fault
from hermes.memory_server.ids import SCOPE_PREFIX, refuse_scopes

router = new_router("sessions")
ROOT = "/v3/workspaces/{workspace_id}/sessions"
SESSION = f"{ROOT}/{{session_id}}"
T = TypeVar("T")


class SessionPeerConfig(Body):
    """Settings of a member: whether it is observed, and whether it observes the others."""

    observe_me: bool | None = None
    observe_others: bool | None = None


MembersBody = Annotated[dict[Name, SessionPeerConfig], BeforeValidator(check_members)]


class SessionCreate(Body):
    """A session to get or create."""

    id: Identity
    metadata: Metadata | None = None
    peers: Annotated[MembersBody | None, Field(validation_alias=AliasChoices("peers", "peer_names"))] = None
    configuration: CleanConfiguration | None = None
    scopes: Annotated[list[ScopeName], Field(max_length=limits.MAX_SCOPES)] | None = None


class SessionUpdate(Body):
    """Changes to a session."""

    metadata: Metadata | None = None
    configuration: CleanConfiguration | None = None


class SessionPeerConfigResponse(TypedDict):
    observe_me: bool | None
    observe_others: bool | None


class Summary(TypedDict):
    content: str
    message_id: str
    summary_type: str
    created_at: str
    token_count: int


def show_summary(row: Record | None) -> Summary | None:
    if row is None:
        return None
    return {
        "content": row.content,
        "message_id": row.public_id,
        "summary_type": TYPES[row.kind],
        "created_at": times.to_wire_seconds(row.created_at),
        "token_count": row.token_count,
    }


class SessionSummaries(TypedDict):
    id: str
    short_summary: Summary | None
    long_summary: Summary | None


def _observations(given: MembersBody) -> dict[str, Observation]:
    return {name: Observation(config.observe_me, config.observe_others) for name, config in given.items()}


@router.post(ROOT, response_model=Session, responses={201: {"model": Session}})
async def get_or_create_session(
    workspace_id: str, body: SessionCreate, here: ServerDep, caller: AnyKey, idempotency_key: KeyHeader = None
) -> Response:
    """Get or create a session. Given metadata replaces the old, configuration is merged, peers and scopes are added."""
    configuration = body.configuration.given() if body.configuration else None
    me = caller.only_peer
    added = {**({me: SessionPeerConfig()} if me is not None else {}), **(body.peers or {})}
    # The caller is part of the request's identity: what its key may open depends on the state.
    holder = (caller.admin, caller.peer, caller.session)
    once = Once(here, asked("sessions", idempotency_key, (body, holder)), workspace_id)

    def open_(tx: Tx, at: int) -> tuple[Row[Any], int]:
        auth.require(caller.holds(workspace_id) or _may_open(tx, caller, workspace_id, body))
        row, made = engine.ensure_session(tx, workspace_id, body.id, at, body.metadata, configuration)
        for name in body.scopes or []:
            scope, _ = ensure_scope(tx, workspace_id, name, None, at)
            add_sessions(tx, workspace_id, scope, [body.id], at)
        return row, 201 if made else 200

    return await _add_members(here, once, workspace_id, body.id, added, open_)


async def _add_members(
    here: Server,
    once: Once,
    workspace: str,
    session: str,
    given: MembersBody,
    open_: Callable[[Tx, int], tuple[Row[Any], int]],
) -> Response:
    """Open a session and add members, many of them in several transactions, unless the request was executed before. The
    last transaction stores the response (session and status)."""
    first, *more = members.parts(members.observers_first(_observations(given)))

    def begin(tx: Tx) -> KeptAnswer:
        if (before := once.known(tx)) is not None:
            return before
        row, status = open_(tx, here.now())
        members.add_members(tx, row, first, here.now())
        answer = KeptAnswer.of(show_session(row), status)
        return answer if more else once.keep(tx, answer)

    answer = await here.write(begin)
    if more and not answer.repeated:
        join = partial(members.add_members, at=here.now())
        await _change(here, workspace, session, more[:-1], join)

        def end(tx: Tx) -> KeptAnswer:
            join(tx, engine.lock_session(tx, workspace, session), more[-1])
            return once.known(tx) or once.keep(tx, answer)

        return (await here.write(end)).response()
    return answer.response()


async def _change(
    here: Server, workspace: str, session: str, parts: Iterable[T], change: Callable[[Tx, Row[Any], T], object]
) -> Session | None:
    """Change the members of a session in several transactions, between which others can write. Return the session."""

    def run(tx: Tx, part: T) -> Session:
        row = engine.lock_session(tx, workspace, session)
        change(tx, row, part)
        return show_session(row)

    shown: Session | None = None
    for part in parts:
        shown = await here.write(partial(run, part=part))
    return shown


def _may_open(tx: Tx, caller: Caller, workspace: str, body: SessionCreate) -> bool:
    """Return True if the key of a session or peer permits this request. A session's key opens its session. A peer's key
    opens a session of which the peer is a member, unchanged, or creates one with only that peer. Neither may name
    scopes."""
    if body.scopes is not None:
        return False
    me = caller.only_peer
    if me is None:
        return caller.session == body.id
    if set(body.peers or ()) - {me}:
        return False
    place = find_workspace(tx, workspace)
    if place is None or engine.find_session(tx, place.id, body.id) is None:
        return True
    return is_member(tx, workspace, body.id, me) and body.metadata is None and body.configuration is None


@router.post(f"{ROOT}/list", response_model=Page[Session])
async def list_sessions(
    workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller, body: Filter | None = None
) -> Response:
    """List the active sessions of a workspace."""
    filters = body.filters if body else None
    return show_page(await here.read(lambda tx: engine.list_sessions(tx, workspace_id, filters, page)), show_session)


@router.put(SESSION, response_model=Session)
async def update_session(
    workspace_id: str, session_id: str, body: SessionUpdate, here: ServerDep, _: OwnSession
) -> Response:
    """Replace the metadata of a session, and merge its configuration."""
    configuration = body.configuration.given() if body.configuration else None
    row, _made = await here.write(
        lambda tx: engine.ensure_session(tx, workspace_id, session_id, here.now(), body.metadata, configuration)
    )
    return JsonResponse(show_session(row))


@router.delete(SESSION, status_code=202, response_model=AcceptedResponse)
async def remove_session(workspace_id: str, session_id: str, here: ServerDep, _: OwnSession) -> Response:
    """Delete a session. It disappears from every list immediately."""
    await here.write(lambda tx: delete_session(tx, workspace_id, session_id, here.now()))
    return JsonResponse(AcceptedResponse(message="Session deleted successfully"), 202)


@router.post(f"{SESSION}/peers", response_model=Session)
async def add_peers(
    workspace_id: str,
    session_id: str,
    body: Annotated[MembersBody, WholeBody()],
    here: ServerDep,
    _: OwnSession,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Add peers to a session."""
    once = Once(here, asked("peers", idempotency_key, body), workspace_id, session_id)

    def open_(tx: Tx, at: int) -> tuple[Row[Any], int]:
        return engine.ensure_session(tx, workspace_id, session_id, at)[0], 200

    return await _add_members(here, once, workspace_id, session_id, body, open_)


@router.put(f"{SESSION}/peers", response_model=Session)
async def set_peers(
    workspace_id: str, session_id: str, body: Annotated[MembersBody, WholeBody()], here: ServerDep, _: OwnSession
) -> Response:
    """Set the exact members of a session."""
    given = members.observers_first(_observations(body))

    def leave(tx: Tx, after: int) -> int | None:
        return members.remove_others(tx, engine.lock_session(tx, workspace_id, session_id), given, after)

    after: int | None = 0
    while after is not None:
        after = await here.write(partial(leave, after=after))
    join = partial(members.set_members, at=here.now())
    return JsonResponse(await _change(here, workspace_id, session_id, members.parts(given), join))


@router.delete(f"{SESSION}/peers", response_model=Session)
async def remove_peers(
    workspace_id: str, session_id: str, body: Annotated[TextList, WholeBody()], here: ServerDep, _: OwnSession
) -> Response:
    """Remove peers from a session."""
    refuse_scopes(*body)
    parts = members.parts(dict.fromkeys(body))
    return JsonResponse(await _change(here, workspace_id, session_id, parts, members.remove_members))


@router.get(f"{SESSION}/peers", response_model=Page[Peer])
async def list_session_peers(
    workspace_id: str, session_id: str, here: ServerDep, _: Member, page: ForwardPaging
) -> Response:
    """List the current members of a session."""
    found = await here.read(lambda tx: list_members(tx, engine.live_session_id(tx, workspace_id, session_id), page))
    return show_page(found, show_peer)


@router.get(f"{SESSION}/peers/{{peer_id}}/config", response_model=SessionPeerConfigResponse)
async def get_peer_config(
    workspace_id: str, session_id: str, peer_id: str, here: ServerDep, caller: Member
) -> Response:
    """Return the settings of a member, or of a scope of the session."""
    auth.require(caller.holds(workspace_id) or not peer_id.startswith(SCOPE_PREFIX))
    found = await here.read(
        lambda tx: members.get_observation(tx, engine.get_session(tx, workspace_id, session_id), peer_id)
    )
    shown = SessionPeerConfigResponse(observe_me=found.observe_me, observe_others=found.observe_others)
    return JsonResponse(shown)


@router.put(f"{SESSION}/peers/{{peer_id}}/config", status_code=204)
async def set_peer_config(
    workspace_id: str, session_id: str, peer_id: str, body: SessionPeerConfig, here: ServerDep, _: OwnSession
) -> Response:
    """Change the settings of a member. A peer that is not a member becomes one."""
    refuse_scopes(peer_id)
    given = Observation(body.observe_me, body.observe_others)

    def run(tx: Tx) -> None:
        members.set_observation(tx, engine.lock_session(tx, workspace_id, session_id), peer_id, given, here.now())

    await here.write(run)
    return Response(status_code=204)


@router.get(f"{SESSION}/summaries", response_model=SessionSummaries)
async def get_summaries(workspace_id: str, session_id: str, here: ServerDep, _: Member) -> Response:
    """Return the newest short and long summary."""

    def run(tx: Tx) -> SessionSummaries:
        found = read_summaries(tx, engine.live_session_id(tx, workspace_id, session_id))
        short, long = show_summary(found.get("short")), show_summary(found.get("long"))
        return {"id": session_id, "short_summary": short, "long_summary": long}

    return JsonResponse(await here.read(run))


@router.post(f"{SESSION}/clone", status_code=201, response_model=Session)
async def clone(
    workspace_id: str,
    session_id: str,
    here: ServerDep,
    _: OwnSession,
    message_id: str | None = None,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Copy a session, up to and including a message."""
    once = Once(here, asked("clone", idempotency_key, message_id), workspace_id, session_id)
    begun = await here.write(
        lambda tx: once.known(tx) or begin_clone(tx, workspace_id, session_id, message_id, here.now())
    )
    if isinstance(begun, KeptAnswer):
        return begun.response()
    copy, copied = begun, 0

    def finish(tx: Tx) -> KeptAnswer:
        if (before := once.known(tx)) is not None:  # two concurrent requests, and the other copy is complete
            abandon_clone(tx, copy)
            return before
        return once.keep(tx, KeptAnswer.of(show_session(finish_clone(tx, copy, here.now())), 201))

    try:
        while copied < copy.last:
            copied = await here.write(partial(copy_part, copy=copy, after=copied))
        return (await here.write(finish)).response()
    except (Fault, StoreError):
        await here.write(lambda tx: abandon_clone(tx, copy))
        raise
