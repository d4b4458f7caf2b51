"""Routes of questions to memory: of one peer, and of a whole workspace. Answers come whole or as a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Response
from starlette.responses import StreamingResponse

from hermes.memory_server.api import auth, replies, wire
from hermes.memory_server.api.auth import OwnPeer, WorkspaceCaller
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.recall import allowed_sessions, check_scope, make_view, scope_rows, session_rows
from hermes.memory_server.api.schemas import DialecticOptions, WorkspaceDialectic
from hermes.memory_server.api.server import ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.engine.dialectic import PeerAnswer, answer, check_schema, structure
from hermes.memory_server.engine.peers import ensure_peer, find_peer, get_peer, is_member
from hermes.memory_server.engine.recall import every_view
from hermes.memory_server.engine.scopes import get_scopes
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.workspaces import get_workspace, workspace_id_of
from hermes.memory_server.ids import refuse_scopes

router = new_router("chat")
ROOT = "/v3/workspaces/{workspace_id}"
PIECE = 48
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}


@router.post(f"{ROOT}/peers/{{peer_id}}/chat", response_model=replies.DialecticAnswer, responses=STREAM)
async def chat_with_peer(
    workspace_id: str, peer_id: str, body: DialecticOptions, here: ServerDep, caller: OwnPeer
) -> Response:
    """Ask what a peer knows, about itself or a target."""
    auth.require((body.scope is None and not body.with_own_view) or caller.holds(workspace_id))
    refuse_scopes(peer_id, body.target)
    names = _check(body)
    asked = [*(names or ()), *([body.session_id] if body.session_id is not None else ())]
    if (mine := caller.only_peer) is not None and asked:
        auth.require(await here.read(lambda tx: all(is_member(tx, workspace_id, name, mine) for name in asked)))

    question = await here.ask_messages(workspace_id, body.query)

    def run(tx: Tx, observer: Record) -> wire.WireObject:
        observed = get_peer(tx, workspace_id, body.target) if body.target else observer
        place = _place(tx, workspace_id, body, names)
        view = make_view(tx, workspace_id, observer.id, observed.id, body.scope, names)
        # What the observed peer said where the observer heard it; what others said is in the conclusions.
        said = SearchArea(place.workspace_id, place.sessions, observed.id)
        alone = observed.id == observer.id or isinstance(body.scope, str)
        views = [view] if alone or not body.with_own_view else [view, replace(view, observer=observed.id)]
        heard = None if alone or body.with_own_view else {"peer_perspective": observer.name}
        return _reply(answer(tx, here.vectors, views, said, question, body.reasoning_level, heard), body)

    def run_if_known(tx: Tx) -> wire.WireObject | None:
        observer = find_peer(tx, workspace_id_of(tx, workspace_id), peer_id)
        return None if observer is None else run(tx, observer)

    found = await here.read(run_if_known)
    if found is None:  # only the first question to a peer writes
        await here.write(lambda tx: ensure_peer(tx, workspace_id, peer_id, here.now()))
        found = await here.read(lambda tx: run(tx, get_peer(tx, workspace_id, peer_id)))
    return _response(found, body)


@router.post(f"{ROOT}/chat", response_model=replies.DialecticAnswer, responses=STREAM)
async def chat_with_workspace(
    workspace_id: str, body: WorkspaceDialectic, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Ask what a whole workspace knows."""
    names = _check(body)
    question = await here.ask_messages(workspace_id, body.query)

    def run(tx: Tx) -> wire.WireObject:
        place = _place(tx, workspace_id, body, names)
        scopes = None if body.scope is None else get_scopes(tx, workspace_id, body.scope)
        rows = session_rows(tx, workspace_id, names)
        views = every_view(tx, place.workspace_id, scopes, rows)
        return _reply(answer(tx, here.vectors, views, place, question, body.reasoning_level), body)

    return _response(await here.read(run), body)


def _check(body: WorkspaceDialectic) -> Sequence[str] | None:
    if body.response_format is not None:
        check_schema(body.response_format)
    check_scope(body.scope, body.filters, body.session_id)
    return allowed_sessions(body.filters, body.session_id)


def _place(tx: Tx, workspace: str, body: WorkspaceDialectic, names: Sequence[str] | None) -> SearchArea:
    """Where to look for what was said; a session that is named must exist."""
    found = get_workspace(tx, workspace)
    if body.session_id is not None:
        get_session(tx, workspace, body.session_id)
    if body.scope is not None:
        return SearchArea(found.id, scope_rows(tx, workspace, body.scope))
    return SearchArea(found.id, session_rows(tx, workspace, names))


def _reply(found: PeerAnswer, body: WorkspaceDialectic) -> wire.WireObject:
    content = found.content if body.response_format is None else structure(found, body.response_format)
    return {"content": content, **({"evidence": wire.evidence(found)} if body.include_evidence else {})}


def _response(reply: wire.WireObject, body: WorkspaceDialectic) -> Response:
    if body.stream:
        return StreamingResponse(_stream(reply["content"] or "", reply.get("evidence")), media_type="text/event-stream")
    return wire.JsonResponse(reply)


async def _stream(content: str, evidence: dict[str, Any] | None) -> AsyncIterator[str]:
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        yield f"data: {json.dumps({'delta': {'content': piece}, 'done': False})}\n\n"
    end: dict[str, Any] = {"done": True}
    if evidence is not None:
        end["evidence"] = evidence
    yield f"data: {wire.JsonResponse(end).body.decode()}\n\n"  # type: ignore[union-attr]
