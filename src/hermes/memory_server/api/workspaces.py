"""Routes for workspaces: the workspaces themselves, search, queue status, dreams and keys."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from pydantic import Field
from typing_extensions import TypedDict

from hermes.memory_server import times
from hermes.memory_server.api import auth
from hermes.memory_server.api.auth import Admin, AnyKey, Caller, WorkspaceCaller
from hermes.memory_server.api.bodies import (
    AcceptedResponse,
    CleanConfiguration,
    ConfigurationBody,
    Detail,
    Filter,
    Identity,
    JsonObject,
    JsonResponse,
    JsonText,
    Moment,
    Page,
    show_page,
)
from hermes.memory_server.api.clean import Body, CleanText, Metadata, Name
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.server import Paging, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine import workspaces as engine
from hermes.memory_server.engine.deletion import delete_workspace
from hermes.memory_server.engine.dreams import schedule_dream
from hermes.memory_server.engine.jobs import Counts, OpenJobs, QueueCounts, read_status
from hermes.memory_server.faults import Invalid, SwitchedOff

router = new_router("workspaces")
ROOT = "/v3/workspaces/{workspace_id}"


class WorkspaceCreate(Body):
    """A workspace to get or create."""

    id: Identity
    metadata: Metadata = Field(default_factory=dict)
    configuration: CleanConfiguration = Field(default_factory=ConfigurationBody)


class WorkspaceUpdate(Body):
    """Changes to a workspace."""

    metadata: Metadata | None = None
    configuration: CleanConfiguration | None = None


class Workspace(TypedDict):
    id: str
    uid: str
    metadata: JsonObject
    configuration: JsonObject
    created_at: Moment


def show_workspace(row: Record) -> Workspace:
    return {
        "id": row.name,
        "uid": row.uid,
        "metadata": JsonText(row.metadata),
        "configuration": JsonText(row.configuration),
        "created_at": times.to_wire(row.created_at),
    }


class ScheduleDream(Body):
    """A request for a dream."""

    observer: CleanText
    dream_type: Literal["omni", "card_refresh"]
    observed: CleanText | None = None
    session_id: CleanText | None = None
    rebuild: bool = False


class WorkUnits(TypedDict):
    total_work_units: int
    completed_work_units: int
    in_progress_work_units: int
    pending_work_units: int


class SessionQueueStatus(WorkUnits):
    session_id: str | None


class PromisedWork(TypedDict):
    waiting: int
    tries: int


class FailingWork(PromisedWork):
    reason: str


class QueueStatus(WorkUnits):
    sessions: dict[str, SessionQueueStatus] | None
    promised: dict[str, PromisedWork]
    failing: dict[str, FailingWork]
    waiting: dict[str, FailingWork]


def _queue_status(status: QueueCounts) -> QueueStatus:
    sessions: dict[str, SessionQueueStatus] | None = None
    if status.sessions is not None:
        sessions = {uid: {"session_id": uid, **_counts(counts)} for uid, counts in status.sessions.items()}
    return {
        **_counts(status.all),
        "sessions": sessions,
        "promised": {kind: {"waiting": open_.waiting, "tries": open_.tries} for kind, open_ in status.promised.items()},
        "failing": _failing(status.failing),
        "waiting": _failing(status.waiting),
    }


def _failing(given: dict[str, OpenJobs]) -> dict[str, FailingWork]:
    return {
        kind: {"waiting": open_.waiting, "tries": open_.tries, "reason": open_.reason} for kind, open_ in given.items()
    }


def _counts(counts: Counts) -> WorkUnits:
    return {
        "total_work_units": counts.total,
        "completed_work_units": counts.completed,
        "in_progress_work_units": counts.running,
        "pending_work_units": counts.pending,
    }


class KeyResponse(TypedDict):
    key: str


@router.post("/v3/workspaces", response_model=Workspace, responses={201: {"model": Workspace}})
async def get_or_create_workspace(
    body: WorkspaceCreate, here: ServerDep, caller: AnyKey, idempotency_key: KeyHeader = None
) -> Response:
    """Get or create a workspace."""
    auth.require(caller.admin or caller.workspace == body.id)

    def run(tx: Tx) -> KeptAnswer:
        row, made = engine.ensure_workspace(tx, body.id, here.now(), body.metadata, body.configuration.given())
        return KeptAnswer.of(show_workspace(row), 201 if made else 200)

    return await Once(here, asked("workspaces", idempotency_key, body), body.id).write(run)


@router.post("/v3/workspaces/list", response_model=Page[Workspace])
async def list_workspaces(here: ServerDep, page: Paging, caller: AnyKey, body: Filter | None = None) -> Response:
    """List workspaces: all with the admin key, one with a workspace's key."""
    auth.require(caller.admin or caller.holds(caller.workspace or ""))
    filters = body.filters if body else None
    only = None if caller.admin else caller.workspace
    return show_page(await here.read(lambda tx: engine.list_workspaces(tx, filters, page, only)), show_workspace)


@router.put(ROOT, response_model=Workspace)
async def update_workspace(workspace_id: Name, body: WorkspaceUpdate, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Change the metadata or configuration of a workspace."""
    configuration = body.configuration.given() if body.configuration else None
    row = await here.write(
        lambda tx: engine.update_workspace(tx, workspace_id, here.now(), body.metadata, configuration)
    )
    return JsonResponse(show_workspace(row))


@router.delete(ROOT, status_code=202, response_model=AcceptedResponse)
async def remove_workspace(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Delete a workspace that has no active session."""
    await here.write(lambda tx: delete_workspace(tx, workspace_id, here.now()))
    return JsonResponse(AcceptedResponse(message="Workspace deletion accepted"), 202)


@router.get(f"{ROOT}/queue/status", response_model=QueueStatus)
async def queue_status(
    workspace_id: str,
    here: ServerDep,
    _: WorkspaceCaller,
    observer_id: str | None = None,
    sender_id: str | None = None,
    session_id: str | None = None,
) -> Response:
    """Return the number of pending and finished background tasks."""
    status = await here.read(lambda tx: read_status(tx, workspace_id, observer_id, sender_id, session_id))
    return JsonResponse(_queue_status(status))


@router.post(f"{ROOT}/schedule_dream", status_code=204)
async def dream(
    workspace_id: str, body: ScheduleDream, here: ServerDep, _: WorkspaceCaller, idempotency_key: KeyHeader = None
) -> Response:
    """Queue a dream."""

    def run(tx: Tx) -> KeptAnswer:
        schedule_dream(tx, workspace_id, body.observer, body.observed, body.dream_type, body.session_id, here.now())
        return KeptAnswer(204)

    return await Once(here, asked("schedule_dream", idempotency_key, body), workspace_id).write(run)


@router.post("/v3/keys", response_model=KeyResponse, responses={405: {"model": Detail}})
async def create_key(
    here: ServerDep,
    _: Admin,
    workspace_id: Name | None = None,
    peer_id: Name | None = None,
    session_id: Name | None = None,
    expires_at: str | None = None,
) -> Response:
    """Create a key for a workspace, or for one peer or session in it."""
    if not here.options.use_auth:
        raise SwitchedOff("Authentication is disabled on this server")
    if workspace_id is None and peer_id is None and session_id is None:
        raise Invalid("At least one of workspace_id, peer_id and session_id is needed")
    if workspace_id is None:
        raise Invalid("A key for a peer or session needs workspace_id")
    expiry = None if expires_at is None else times.parse(expires_at)
    caller = Caller(False, workspace_id, peer_id, session_id)
    return JsonResponse(KeyResponse(key=auth.make_key(caller, here.options.jwt_secret, here.now(), expiry)))
