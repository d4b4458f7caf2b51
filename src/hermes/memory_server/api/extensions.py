"""Routes beyond Honcho's API, under `ext`: deletion of peers and messages, provenance, corrections, merges.

Routes to reread the messages of a workspace that an earlier version has read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import orjson
from fastapi import Response
from typing_extensions import TypedDict

from hermes.memory_server import times
from hermes.memory_server.api.auth import OwnSession, WorkspaceCaller
from hermes.memory_server.api.bodies import (
    AcceptedResponse,
    Conclusion,
    JsonResponse,
    Message,
    Moment,
    Page,
    show_conclusion,
    show_message,
    show_moment,
    show_page,
)
from hermes.memory_server.api.clean import Body, CleanText, ConclusionText, Name
from hermes.memory_server.api.conclusions import check_size
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeptAnswer, KeyHeader, Once, asked
from hermes.memory_server.api.server import Paging, Server, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine import conclusions, dreams, merging, rereading
from hermes.memory_server.engine.answers import merge_route
from hermes.memory_server.engine.conclusions import FORGOTTEN_AT_KEY, get_conclusion
from hermes.memory_server.engine.deletion import ROWS_PER_TRANSACTION, begin_removal, remove_part
from hermes.memory_server.engine.merging import UNDO_WINDOW_MICROSECONDS as MERGE_KEPT
from hermes.memory_server.engine.peer_deletion import delete_peer
from hermes.memory_server.engine.truth import list_pairs, valid_from

router = new_router("extensions")
ROOT = "/v3/workspaces/{workspace_id}/ext"
MESSAGES = f"{ROOT}/sessions/{{session_id}}/messages"
CONCLUSION = f"{ROOT}/conclusions/{{conclusion_id}}"


class PeerMerge(Body):
    """The peer into which another is merged."""

    into: Name


class MergePreview(TypedDict):
    messages: int
    sessions: int
    conclusions: int
    cards: int


class Merge(TypedDict):
    id: str
    peer_id: str
    into: str
    state: Literal["running", "done", "undoing", "undone"]
    created_at: Moment
    undo_until: Moment


def _merge(row: Record) -> Merge:
    return {
        "id": row.public_id,
        "peer_id": row.from_name,
        "into": row.into_name,
        "state": row.state,
        "created_at": times.to_wire(row.created_at),
        "undo_until": times.to_wire(row.created_at + MERGE_KEPT),
    }


class PeerMove(Body):
    """The peer to which messages are reassigned."""

    to: Name


class PeerMoved(TypedDict):
    moved: bool


class Removed(TypedDict):
    deleted: int


class ConclusionEdit(Body):
    """The new text of a conclusion."""

    content: ConclusionText


class ConclusionVersion(TypedDict):
    content: str
    replaced_at: Moment


def _version(row: Record) -> ConclusionVersion:
    return {"content": row.content, "replaced_at": times.to_wire(row.replaced_at)}


class Supersession(TypedDict):
    """A later conclusion that changed an earlier one, or contradicts it."""

    id: str
    kind: Literal["change", "contradiction"]
    why: str
    older_id: str
    older_content: str
    older_said_at: Moment
    newer_id: str
    newer_content: str
    newer_said_at: Moment
    created_at: Moment
    undone_at: Moment | None


def _supersession(row: Record) -> Supersession:
    return {
        "id": row.public_id,
        "kind": row.kind,
        "why": row.why,
        "older_id": row.older,
        "older_content": row.older_content,
        "older_said_at": times.to_wire(row.older_created_at),
        "newer_id": row.newer,
        "newer_content": row.newer_content,
        "newer_said_at": times.to_wire(row.newer_created_at),
        "created_at": times.to_wire(row.created_at),
        "undone_at": show_moment(row.undone_at),
    }


class ConclusionHistory(TypedDict):
    """The times at which a conclusion was stated, learned and valid, and what it changed or was changed by."""

    id: str
    said_at: Moment
    happened_at: Moment | None
    learnt_at: Moment | None
    valid_from: Moment
    valid_until: Moment | None
    superseded_by: str | None
    forgotten_at: Moment | None
    supersessions: list[Supersession]


def _history(row: Record, pairs: Iterable[Record]) -> ConclusionHistory:
    """Return the times of a conclusion, and the pairs in which it takes part."""
    return {
        "id": row.public_id,
        "said_at": times.to_wire(row.created_at),
        "happened_at": show_moment(row.happened_at),
        "learnt_at": show_moment(row.learnt_at),
        "valid_from": times.to_wire(valid_from(row)),
        "valid_until": show_moment(row.valid_until),
        "superseded_by": row.newer,
        "forgotten_at": orjson.loads(row.metadata).get(FORGOTTEN_AT_KEY),
        "supersessions": [_supersession(pair) for pair in pairs],
    }


class Retired(TypedDict):
    """A hidden conclusion, with the reason: another one has the same content, a premise no longer holds, or rereading
    its message gave a different result."""

    id: str
    why: Literal["same", "premise", "reread"]


class Dream(TypedDict):
    """A report of a dream."""

    id: str
    created_at: Moment
    undone_at: Moment | None
    added: list[str]
    retired: list[Retired]


def _dream(row: Record) -> Dream:
    report = orjson.loads(row.report)
    return {
        "id": row.public_id,
        "created_at": times.to_wire(row.created_at),
        "undone_at": show_moment(row.undone_at),
        "added": report["added"],
        "retired": [{"id": one["id"], "why": one["why"]} for one in report["retired"]],
    }


class Rereading(TypedDict):
    """The estimated effect of rereading a workspace, from its newest messages, and the progress so far. Progress counts
    are of all workspaces; `undone` counts reports."""

    messages: int
    looked_at: int
    would_add: int
    examples: list[str]
    was_deleted: bool
    retired: int
    added: int
    undone: int
    left: int


@router.delete(f"{ROOT}/peers/{{peer_id}}", status_code=202, response_model=AcceptedResponse)
async def remove_peer(workspace_id: str, peer_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Delete a peer with its messages and with all conclusions by and about it. It disappears from every list
    immediately."""
    await here.write(lambda tx: delete_peer(tx, workspace_id, peer_id, here.now()))
    return JsonResponse(AcceptedResponse(message="Peer deleted successfully"), 202)


@router.get(f"{ROOT}/peers/{{peer_id}}/merge", response_model=MergePreview)
async def preview_merge(
    workspace_id: str, peer_id: str, here: ServerDep, _: WorkspaceCaller, into: CleanText
) -> Response:
    """Return how much a merge of this peer would move to the other one."""
    return JsonResponse(await here.read(lambda tx: merging.preview_merge(tx, workspace_id, peer_id, into)))


@router.post(f"{ROOT}/peers/{{peer_id}}/merge", status_code=202, response_model=Merge)
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
        return KeptAnswer.of(_merge(merging.begin_merge(tx, workspace_id, peer_id, body.into, here.now())), 202)

    return await Once(here, asked(merge_route(peer_id), idempotency_key, body), workspace_id).write(run)


@router.post(f"{ROOT}/sessions/{{session_id}}/peers/{{peer_id}}/move", response_model=PeerMoved)
async def move_peer(
    workspace_id: str, session_id: str, peer_id: str, body: PeerMove, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Reassign a peer's messages in one session, and the conclusions from them, to another peer."""
    while await here.write(
        lambda tx: merging.move_in_session(tx, workspace_id, session_id, peer_id, body.to, here.now())
    ):
        pass
    return JsonResponse(PeerMoved(moved=True))


@router.get(f"{ROOT}/merges", response_model=Page[Merge])
async def list_merges(workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller) -> Response:
    """List the merges of a workspace and their progress."""
    return show_page(await here.read(lambda tx: merging.list_merges(tx, workspace_id, page)), _merge)


@router.delete(f"{ROOT}/merges/{{merge_id}}", status_code=202, response_model=Merge)
async def undo_merge(workspace_id: str, merge_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Undo a merge, up to seven days after it."""
    row = await here.write(lambda tx: merging.begin_undoing(tx, workspace_id, merge_id, here.now()))
    return JsonResponse(_merge(row), 202)


@router.delete(f"{MESSAGES}/{{message_id}}", response_model=Removed)
async def remove_message(
    workspace_id: str, session_id: str, message_id: str, here: ServerDep, _: OwnSession
) -> Response:
    """Delete a message, and the conclusions that rest on it alone."""
    return await _remove(here, workspace_id, session_id, message_id, message_id)


@router.delete(MESSAGES, response_model=Removed)
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
    return JsonResponse(Removed(deleted=deleted))


@router.get(f"{MESSAGES}/{{message_id}}/conclusions", response_model=Page[Conclusion])
async def list_concluded(
    workspace_id: str, session_id: str, message_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the conclusions drawn from a message."""
    found = await here.read(lambda tx: conclusions.list_concluded(tx, workspace_id, session_id, message_id, page))
    return show_page(found, show_conclusion)


@router.get(f"{CONCLUSION}/messages", response_model=Page[Message])
async def list_sources(
    workspace_id: str, conclusion_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the messages from which a conclusion was drawn; empty for one that a client stored."""
    found = await here.read(lambda tx: conclusions.list_sources(tx, workspace_id, conclusion_id, page))
    return show_page(found, show_message)


@router.put(CONCLUSION, response_model=Conclusion)
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
    return JsonResponse(show_conclusion(row))


@router.get(f"{CONCLUSION}/versions", response_model=Page[ConclusionVersion])
async def list_versions(
    workspace_id: str, conclusion_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller
) -> Response:
    """List the earlier texts of an edited conclusion, oldest first."""
    found = await here.read(lambda tx: conclusions.list_versions(tx, workspace_id, conclusion_id, page))
    return show_page(found, _version)


@router.get(f"{CONCLUSION}/history", response_model=ConclusionHistory)
async def read_history(workspace_id: str, conclusion_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return when a conclusion was stated and valid, and what it changed or was changed by."""

    def run(tx: Tx) -> Response:
        row = get_conclusion(tx, workspace_id, conclusion_id)
        return JsonResponse(_history(row, list_pairs(tx, row.id)))

    return await here.read(run)


@router.delete(f"{ROOT}/supersessions/{{supersession_id}}", response_model=Supersession)
async def undo_supersession(workspace_id: str, supersession_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Undo a change of one conclusion by another: both are valid again, permanently. Repeating it has no effect."""
    row = await here.write(lambda tx: conclusions.undo_change(tx, workspace_id, supersession_id, here.now()))
    return JsonResponse(_supersession(row))


@router.get(f"{ROOT}/dreams", response_model=Page[Dream])
async def list_dreams(workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller) -> Response:
    """List dreams with what each added and retired, oldest first."""
    return show_page(await here.read(lambda tx: dreams.list_dreams(tx, workspace_id, page)), _dream)


@router.delete(f"{ROOT}/dreams/{{dream_id}}", response_model=Dream)
async def undo_dream(workspace_id: str, dream_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Undo a dream: what it retired is restored, what it added is removed permanently. Repeating it has no effect."""
    row = await here.write(lambda tx: dreams.undo_dream(tx, workspace_id, dream_id, here.now()))
    return JsonResponse(_dream(row))


REREAD = f"{ROOT}/reread"


@router.get(REREAD, response_model=Rereading)
async def preview_rereading(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Estimate from the newest messages what rereading would add, and return its progress."""
    return JsonResponse(await here.read(lambda tx: rereading.preview(tx, workspace_id)))


@router.post(REREAD, status_code=202, response_model=AcceptedResponse)
async def begin_rereading(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Reread all messages of a workspace in the background, and add conclusions that are missing."""
    await here.write(lambda tx: rereading.begin_rereading(tx, workspace_id, here.now()))
    return JsonResponse(AcceptedResponse(message="Rereading queued"), 202)


@router.delete(REREAD, response_model=AcceptedResponse)
async def undo_rereading(workspace_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Stop rereading, restore what it retired, and remove what it added. Repeating it has no effect."""
    while await here.write(lambda tx: rereading.undo_part(tx, workspace_id, here.now())):
        pass
    return JsonResponse(AcceptedResponse(message="Rereading undone"))
