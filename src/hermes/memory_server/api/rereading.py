"""Routes to reread the messages of a workspace that an earlier version has read."""

from __future__ import annotations

from fastapi import Response

from hermes.memory_server.api import replies, wire
from hermes.memory_server.api.auth import WorkspaceCaller
from hermes.memory_server.api.extensions import ROOT
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.server import ServerDep
from hermes.memory_server.engine import rereading

router = new_router("extensions")
REREAD = f"{ROOT}/reread"


@router.get(REREAD, response_model=replies.Rereading)
async def preview_rereading(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Estimate from the newest messages what rereading would add, and return its progress."""
    return wire.JsonResponse(await here.read(lambda tx: rereading.preview(tx, workspace_id)))


@router.post(REREAD, status_code=202, response_model=replies.AcceptedResponse)
async def begin_rereading(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Reread all messages of a workspace in the background, and add conclusions that are missing."""
    await here.write(lambda tx: rereading.begin_rereading(tx, workspace_id, here.now()))
    return wire.JsonResponse({"message": "Rereading queued"}, 202)


@router.delete(REREAD, response_model=replies.AcceptedResponse)
async def undo_rereading(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Stop rereading, restore what it retired, and remove what it added. Repeating it has no effect."""
    while await here.write(lambda tx: rereading.undo_part(tx, workspace_id, here.now())):
        pass
    return wire.JsonResponse({"message": "Rereading undone"})
