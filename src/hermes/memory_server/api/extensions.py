"""Routes beyond Honcho's API, under `ext`: deletion of peers and messages, provenance, corrections, merges.

Routes to reread the messages of a workspace that an earlier version has read.
"""

from __future__ import annotations

from fastapi import Response

from hermes.memory_server.api import replies, wire
from hermes.memory_server.api.auth import OwnSession, WorkspaceCaller
from hermes.memory_server.api.clean import CleanText
from hermes.memory_server.api.conclusions import check_size
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.schemas import ConclusionEdit, PeerMerge, PeerMove
from hermes.memory_server.api.server import Paging, Server, ServerDep
from hermes.memory_server.db.database import Tx
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine import conclusions, dreams, merging, rereading
from hermes.memory_server.engine.answers import merge_route
from hermes.memory_server.engine.conclusions import get_conclusion
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION
from hermes.memory_server.engine.peer_deletion import delete_peer
from hermes.memory_server.engine.removal import begin_removal, remove_part
from hermes.memory_server.engine.truth import list_pairs

router = new_router("extensions")
ROOT = "/v3/workspaces/{workspace_id}/ext"
MESSAGES = f"{ROOT}/sessions/{{session_id}}/messages"
CONCLUSION = f"{ROOT}/conclusions/{{conclusion_id}}"


@router.delete(f"{ROOT}/peers/{{peer_id}}", status_code=202, response_model=replies.AcceptedResponse)
async def remove_peer(workspace_id: str, peer_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Delete a peer with its messages and with all conclusions by and about it. It disappears from every list
    immediately."""
    await here.write(lambda tx: delete_peer(tx, workspace_id, peer_id, here.now()))
    return wire.JsonResponse({"message": "Peer deleted successfully"}, 202)


@router.get(f"{ROOT}/peers/{{peer_id}}/merge", response_model=replies.MergePreview)
async def preview_merge(
    workspace_id: str, peer_id: str, here: ServerDep, _: WorkspaceCaller, into: CleanText
) -> Response:
    """Return how much a merge of this peer would move to the other one."""
    return wire.JsonResponse(await here.read(lambda tx: merging.preview_merge(tx, workspace_id, peer_id, into)))


@router.post(f"{ROOT}/peers/{{peer_id}}/merge", status_code=202, response_model=replies.Merge)
async def merge_peer(
    workspace_id: str,
    peer_id: str,
    body: PeerMerge,
    here: ServerDep,
    _: WorkspaceCaller,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Merge a peer into another, in the background. From now on its name refers to the other peer."""

    def run(tx: Tx) -> KeptAnswer:
        return KeptAnswer.of(wire.merge(merging.begin_merge(tx, workspace_id, peer_id, body.into, here.now())), 202)

    return await Once(here, asked(merge_route(peer_id), idempotency_key, body), workspace_id).write(run)


@router.post(f"{ROOT}/sessions/{{session_id}}/peers/{{peer_id}}/move", response_model=replies.PeerMoved)
async def move_peer(
    workspace_id: str, session_id: str, peer_id: str, body: PeerMove, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Reassign a peer's messages in one session, and the conclusions from them, to another peer."""
    while await here.write(
        lambda tx: merging.move_in_session(tx, workspace_id, session_id, peer_id, body.to, here.now())
    ):
        pass
    return wire.JsonResponse({"moved": True})


@router.get(f"{ROOT}/merges", response_model=replies.Page[replies.Merge])
async def list_merges(workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller) -> Response:
    """List the merges of a workspace and their progress."""
    return wire.page(await here.read(lambda tx: merging.list_merges(tx, workspace_id, page)), wire.merge)


@router.delete(f"{ROOT}/merges/{{merge_id}}", status_code=202, response_model=replies.Merge)
async def undo_merge(workspace_id: str, merge_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Undo a merge, up to seven days after it."""
    row = await here.write(lambda tx: merging.begin_undoing(tx, workspace_id, merge_id, here.now()))
    return wire.JsonResponse(wire.merge(row), 202)


@router.delete(f"{MESSAGES}/{{message_id}}", response_model=replies.Removed)
async def remove_message(
    workspace_id: str, session_id: str, message_id: str, here: ServerDep, _: OwnSession
) -> Response:
    """Delete a message, and the conclusions that rest on it alone."""
    return await _remove(here, workspace_id, session_id, message_id, message_id)


@router.delete(MESSAGES, response_model=replies.Removed)
async def remove_messages(
    workspace_id: str, session_id: str, here: ServerDep, _: OwnSession, first_id: str, last_id: str
) -> Response:
    """Delete a range of messages, both ends included."""
    return await _remove(here, workspace_id, session_id, first_id, last_id)


async def _remove(here: Server, workspace: str, session: str, first: str, last: str) -> Response:
    removal = await here.write(lambda tx: begin_removal(tx, workspace, session, first, last, here.now()))
    deleted, part = 0, ROWS_PER_TRANSACTION
    while part == ROWS_PER_TRANSACTION:
        part = await here.write(lambda tx: remove_part(tx, removal, here.now()))
        deleted += part
    return wire.JsonResponse({"deleted": deleted})


@router.get(f"{MESSAGES}/{{message_id}}/conclusions", response_model=replies.Page[replies.Conclusion])
async def list_concluded(
    workspace_id: str, session_id: str, message_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the conclusions drawn from a message."""
    found = await here.read(lambda tx: conclusions.list_concluded(tx, workspace_id, session_id, message_id, page))
    return wire.page(found, wire.conclusion)


@router.get(f"{CONCLUSION}/messages", response_model=replies.Page[replies.Message])
async def list_sources(
    workspace_id: str, conclusion_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the messages from which a conclusion was drawn; empty for one that a client stored."""
    found = await here.read(lambda tx: conclusions.list_sources(tx, workspace_id, conclusion_id, page))
    return wire.page(found, wire.message)


@router.put(CONCLUSION, response_model=replies.Conclusion)
async def edit_conclusion(
    workspace_id: str, conclusion_id: str, body: ConclusionEdit, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Correct the text of a conclusion. It keeps its id and date, and the earlier text is kept as a version."""
    await check_size(body.content)
    [vector] = await here.embedder.embed([body.content])
    row = await here.write(
        lambda tx: conclusions.edit_conclusion(
            tx, workspace_id, conclusion_id, body.content, to_blob(vector), here.now()
        )
    )
    return wire.JsonResponse(wire.conclusion(row))


@router.get(f"{CONCLUSION}/versions", response_model=replies.Page[replies.ConclusionVersion])
async def list_versions(
    workspace_id: str, conclusion_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the earlier texts of an edited conclusion, oldest first."""
    found = await here.read(lambda tx: conclusions.list_versions(tx, workspace_id, conclusion_id, page))
    return wire.page(found, wire.conclusion_version)


@router.get(f"{CONCLUSION}/history", response_model=replies.ConclusionHistory)
async def read_history(workspace_id: str, conclusion_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return when a conclusion was stated and valid, and what it changed or was changed by."""

    def run(tx: Tx) -> Response:
        row = get_conclusion(tx, workspace_id, conclusion_id)
        return wire.JsonResponse(wire.history(row, list_pairs(tx, row.id)))

    return await here.read(run)


@router.delete(f"{ROOT}/supersessions/{{supersession_id}}", response_model=replies.Supersession)
async def undo_supersession(workspace_id: str, supersession_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Undo a change of one conclusion by another: both are valid again, permanently. Repeating it has no effect."""
    row = await here.write(lambda tx: conclusions.undo_change(tx, workspace_id, supersession_id, here.now()))
    return wire.JsonResponse(wire.supersession(row))


@router.get(f"{ROOT}/dreams", response_model=replies.Page[replies.Dream])
async def list_dreams(workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller) -> Response:
    """List dreams with what each added and retired, oldest first."""
    return wire.page(await here.read(lambda tx: dreams.list_dreams(tx, workspace_id, page)), wire.dream)


@router.delete(f"{ROOT}/dreams/{{dream_id}}", response_model=replies.Dream)
async def undo_dream(workspace_id: str, dream_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Undo a dream: what it retired is restored, what it added is removed permanently. Repeating it has no effect."""
    row = await here.write(lambda tx: dreams.undo_dream(tx, workspace_id, dream_id, here.now()))
    return wire.JsonResponse(wire.dream(row))


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
