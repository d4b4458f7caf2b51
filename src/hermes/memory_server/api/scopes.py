"""Routes for scopes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import Field
from typing_extensions import TypedDict

from hermes.memory_server import limits, times
from hermes.memory_server.api.auth import WorkspaceCaller
from hermes.memory_server.api.bodies import (
    JsonObject,
    JsonResponse,
    JsonText,
    Moment,
    Page,
    Session,
    show_page,
    show_session,
)
from hermes.memory_server.api.clean import Body, CleanText, Metadata, ScopeName
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.server import Paging, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine import scopes as engine
from hermes.memory_server.ids import SCOPE_PREFIX

router = new_router("scopes")
ROOT = "/v3/workspaces/{workspace_id}/scopes"
SCOPE = f"{ROOT}/{{scope_id}}"


class ScopeCreate(Body):
    """A scope to get or create."""

    id: ScopeName
    metadata: Metadata | None = None


class ScopeSessionsAdd(Body):
    """Sessions to add to a scope."""

    session_ids: Annotated[list[CleanText], Field(min_length=1, max_length=limits.MAX_SCOPES)]


class Scope(TypedDict):
    id: str
    metadata: JsonObject
    created_at: Moment


def _scope(row: Record) -> Scope:
    return {
        "id": row.name.removeprefix(SCOPE_PREFIX),
        "metadata": JsonText(row.metadata),
        "created_at": times.to_wire(row.created_at),
    }


class ScopeStatus(TypedDict):
    backfill_status: dict[str, JsonObject]


@router.post(ROOT, response_model=Scope, responses={201: {"model": Scope}})
async def get_or_create_scope(
    workspace_id: str, body: ScopeCreate, here: ServerDep, _: WorkspaceCaller, idempotency_key: KeyHeader = None
) -> Response:
    """Get or create a scope."""

    def run(tx: Tx) -> KeptAnswer:
        row, made = engine.ensure_scope(tx, workspace_id, body.id, body.metadata, here.now())
        return KeptAnswer.of(_scope(row), 201 if made else 200)

    return await Once(here, asked("scopes", idempotency_key, body), workspace_id).write(run)


@router.post(f"{ROOT}/list", response_model=Page[Scope])
async def list_scopes(workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller) -> Response:
    """List the scopes of a workspace."""
    return show_page(await here.read(lambda tx: engine.list_scopes(tx, workspace_id, page)), _scope)


@router.get(SCOPE, response_model=Scope)
async def get_scope(workspace_id: str, scope_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return one scope."""
    return JsonResponse(_scope(await here.read(lambda tx: engine.get_scope(tx, workspace_id, scope_id))))


@router.post(f"{SCOPE}/sessions", status_code=204)
async def add_sessions(
    workspace_id: str,
    scope_id: str,
    body: ScopeSessionsAdd,
    here: ServerDep,
    _: WorkspaceCaller,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Add sessions to a scope."""

    def run(tx: Tx) -> KeptAnswer:
        scope = engine.get_scope(tx, workspace_id, scope_id)
        engine.add_sessions(tx, workspace_id, scope, body.session_ids, here.now())
        return KeptAnswer(204)

    given = asked(f"scopes/{scope_id}/sessions", idempotency_key, body)
    return await Once(here, given, workspace_id).write(run)


@router.post(f"{SCOPE}/sessions/list", response_model=Page[Session])
async def list_scope_sessions(
    workspace_id: str, scope_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the sessions of a scope."""
    found = await here.read(lambda tx: engine.list_scope_sessions(tx, workspace_id, scope_id, page))
    return show_page(found, show_session)


@router.delete(f"{SCOPE}/sessions/{{session_id}}", status_code=204)
async def remove_session(
    workspace_id: str, scope_id: str, session_id: str, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Remove a session from a scope."""
    await here.write(lambda tx: engine.remove_session(tx, workspace_id, scope_id, session_id, here.now()))
    return Response(status_code=204)


@router.get(f"{SCOPE}/status", response_model=ScopeStatus)
async def scope_status(workspace_id: str, scope_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return the progress of a scope in learning from the earlier messages of its sessions."""
    status = await here.read(lambda tx: engine.read_status(tx, workspace_id, scope_id))
    return JsonResponse(ScopeStatus(backfill_status=status))
