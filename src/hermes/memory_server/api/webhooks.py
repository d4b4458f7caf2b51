"""Routes for webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import AfterValidator
from typing_extensions import TypedDict

from hermes.memory_server import times
from hermes.memory_server.api.auth import WorkspaceCaller
from hermes.memory_server.api.bodies import JsonResponse, Moment, Page, show_page
from hermes.memory_server.api.clean import Body, CleanText
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.server import ForwardPaging, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.engine import webhooks as engine
from hermes.memory_server.engine.webhooks import check_url
from hermes.memory_server.engine.workspaces import get_workspace

router = new_router("webhooks")
ROOT = "/v3/workspaces/{workspace_id}/webhooks"


WebhookUrl = Annotated[CleanText, AfterValidator(check_url)]


class WebhookCreate(Body):
    """A URL to which events are sent."""

    url: WebhookUrl


class WebhookEndpoint(TypedDict):
    id: str
    workspace_id: str
    url: str
    created_at: Moment


def _webhook(row: Record) -> WebhookEndpoint:
    return {
        "id": row.public_id,
        "workspace_id": row.workspace,
        "url": row.url,
        "created_at": times.to_wire(row.created_at),
    }


@router.post(ROOT, response_model=WebhookEndpoint, responses={201: {"model": WebhookEndpoint}})
async def get_or_create_webhook(
    workspace_id: str, body: WebhookCreate, here: ServerDep, _: WorkspaceCaller, idempotency_key: KeyHeader = None
) -> Response:
    """Register a webhook endpoint."""

    def run(tx: Tx) -> KeptAnswer:
        row, made = engine.ensure_webhook(tx, workspace_id, body.url, here.now())
        return KeptAnswer.of(_webhook(row), 201 if made else 200)

    return await Once(here, asked("webhooks", idempotency_key, body), workspace_id).write(run)


@router.get(ROOT, response_model=Page[WebhookEndpoint])
async def list_webhooks(workspace_id: str, here: ServerDep, _: WorkspaceCaller, page: ForwardPaging) -> Response:
    """List the webhook endpoints of a workspace."""
    return show_page(await here.read(lambda tx: engine.list_webhooks(tx, workspace_id, page)), _webhook)


@router.get(f"{ROOT}/test", response_model=None)
async def send_test_event(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Send a test event to every webhook endpoint."""

    def run(tx: Tx) -> None:
        place = get_workspace(tx, workspace_id)
        engine.announce(tx, place.id, "test.event", {"workspace_id": workspace_id}, here.now())

    await here.write(run)
    return JsonResponse(None)


@router.delete(f"{ROOT}/{{endpoint_id}}", status_code=204)
async def delete_webhook(workspace_id: str, endpoint_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Delete a webhook endpoint."""
    await here.write(lambda tx: engine.delete_webhook(tx, workspace_id, endpoint_id))
    return Response(status_code=204)
