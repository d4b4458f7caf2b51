"""Routes for questions to memory, about one peer or a whole workspace. Answers are returned whole or streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, NotRequired

from fastapi import Response
from starlette.responses import StreamingResponse
from typing_extensions import TypedDict

from hermes.memory_server import times
from hermes.memory_server.api import auth
from hermes.memory_server.api.auth import OwnPeer, WorkspaceCaller
from hermes.memory_server.api.bodies import JsonObject, JsonResponse, JsonText, JsonTexts, Moment, ScopeNames
from hermes.memory_server.api.clean import Body, CleanText, Filters, QuestionText, ScopeName
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.recall import allowed_sessions, check_scope, make_view, scope_rows, session_rows
from hermes.memory_server.api.server import Server, ServerDep
from hermes.memory_server.db.database import Record, Tx
from hermes.memory_server.db.text_index import SearchArea
from hermes.memory_server.embedder import SearchQuestion
from hermes.memory_server.engine.dialectic import PeerAnswer, answer, check_schema, structure
from hermes.memory_server.engine.peers import ensure_peer, find_peer, get_peer, is_member
from hermes.memory_server.engine.reading import MemoryReader, ReadingBounds
from hermes.memory_server.engine.reasoning import MemoryAccess, Reasoner
from hermes.memory_server.engine.recall import every_view
from hermes.memory_server.engine.scopes import get_scopes
from hermes.memory_server.engine.sessions import get_session
from hermes.memory_server.engine.workspaces import get_workspace, workspace_id_of
from hermes.memory_server.ids import refuse_scopes

router = new_router("chat")
ROOT = "/v3/workspaces/{workspace_id}"
STREAM_PIECE_CHARS = 48
OfflineAnswer = tuple[PeerAnswer, ReadingBounds]
"""The answer without a model, and the bounds of what a model may read to improve it."""
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}


class WorkspaceDialectic(Body):
    """A question to the memory of a whole workspace."""

    query: QuestionText
    session_id: CleanText | None = None
    filters: Filters | None = None
    scope: ScopeName | ScopeNames | None = None
    stream: bool = False
    reasoning_level: Literal["minimal", "low", "medium", "high", "max"] = "low"
    response_format: Filters | None = None
    include_evidence: bool = False


class DialecticOptions(WorkspaceDialectic):
    """A question to what a peer knows about itself or a target. `with_own_view` is an extension: it includes what the
    target knows about itself."""

    target: CleanText | None = None
    with_own_view: bool = False


class EvidenceConclusion(TypedDict):
    id: str
    level: str
    content: str
    created_at: Moment
    session_id: str | None
    observer_id: str
    observed_id: str
    source_ids: JsonTexts


class EvidenceMessage(TypedDict):
    id: str
    session_id: str
    peer_id: str
    created_at: Moment


class AnswerEvidence(TypedDict):
    conclusions: list[EvidenceConclusion]
    messages: list[EvidenceMessage]
    tool_calls: list[JsonObject]
    reasoning_trace_id: str | None


class DialecticAnswer(TypedDict):
    content: str | None
    evidence: NotRequired[AnswerEvidence]


def _evidence(found: PeerAnswer) -> AnswerEvidence:
    """Return the evidence that was read for an answer."""
    return {
        "conclusions": [_evidence_conclusion(row) for row in found.conclusions],
        "messages": [_evidence_message(row) for row in found.messages],
        "tool_calls": list(found.tool_calls),
        "reasoning_trace_id": None,
    }


def _evidence_conclusion(row: Record) -> EvidenceConclusion:
    return {
        "id": row.public_id,
        "content": row.content,
        "observer_id": row.observer,
        "observed_id": row.observed,
        "session_id": row.session,
        "level": row.level,
        "created_at": times.to_wire(row.created_at),
        "source_ids": JsonText(row.source_ids or "[]"),
    }


def _evidence_message(row: Record) -> EvidenceMessage:
    return {
        "id": row.public_id,
        "session_id": row.session,
        "peer_id": row.peer,
        "created_at": times.to_wire(row.created_at),
    }


@router.post(f"{ROOT}/peers/{{peer_id}}/chat", response_model=DialecticAnswer, responses=STREAM)
async def chat_with_peer(
    workspace_id: str, peer_id: str, body: DialecticOptions, here: ServerDep, caller: OwnPeer
) -> Response:
    """Answer a question from what a peer knows about itself or a target."""
    auth.require((body.scope is None and not body.with_own_view) or caller.holds(workspace_id))
    refuse_scopes(peer_id, body.target)
    names = _check(body)
    asked = [*(names or ()), *([body.session_id] if body.session_id is not None else ())]
    if (mine := caller.only_peer) is not None and asked:
        auth.require(await here.read(lambda tx: all(is_member(tx, workspace_id, name, mine) for name in asked)))

    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx, observer: Record) -> OfflineAnswer:
        observed = get_peer(tx, workspace_id, body.target) if body.target else observer
        place = _place(tx, workspace_id, body, names)
        view = make_view(tx, workspace_id, observer.id, observed.id, body.scope, names)
        # Messages of the observed peer that the observer received; statements of others are in the conclusions.
        said = SearchArea(place.workspace_id, place.sessions, observed.id)
        alone = observed.id == observer.id or isinstance(body.scope, str)
        views = [view] if alone or not body.with_own_view else [view, replace(view, observer=observed.id)]
        heard = None if alone or body.with_own_view else {"peer_perspective": observer.name}
        offline = answer(tx, here.vectors, views, said, question, body.reasoning_level, heard)
        listener = heard or {"peer_perspective": observer.name}
        return offline, ReadingBounds(views, said, heard, _session_id(tx, workspace_id, body), listener)

    def run_if_known(tx: Tx) -> OfflineAnswer | None:
        observer = find_peer(tx, workspace_id_of(tx, workspace_id), peer_id)
        return None if observer is None else run(tx, observer)

    found = await here.read(run_if_known)
    if found is None:  # only the first question to a peer writes
        await here.write(lambda tx: ensure_peer(tx, workspace_id, peer_id, here.now()))
        found = await here.read(lambda tx: run(tx, get_peer(tx, workspace_id, peer_id)))
    return await _respond(here, workspace_id, question, found, body)


@router.post(f"{ROOT}/chat", response_model=DialecticAnswer, responses=STREAM)
async def chat_with_workspace(
    workspace_id: str, body: WorkspaceDialectic, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Answer a question from the memory of a whole workspace."""
    names = _check(body)
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> OfflineAnswer:
        place = _place(tx, workspace_id, body, names)
        scopes = None if body.scope is None else get_scopes(tx, workspace_id, body.scope)
        rows = session_rows(tx, workspace_id, names)
        views = every_view(tx, place.workspace_id, scopes, rows)
        offline = answer(tx, here.vectors, views, place, question, body.reasoning_level)
        return offline, ReadingBounds(views, place, None, _session_id(tx, workspace_id, body))

    return await _respond(here, workspace_id, question, await here.read(run), body)


def _check(body: WorkspaceDialectic) -> Sequence[str] | None:
    if body.response_format is not None:
        check_schema(body.response_format)
    check_scope(body.scope, body.filters, body.session_id)
    return allowed_sessions(body.filters, body.session_id)


def _place(tx: Tx, workspace: str, body: WorkspaceDialectic, names: Sequence[str] | None) -> SearchArea:
    """Return the area in which messages are searched. A named session must exist."""
    found = get_workspace(tx, workspace)
    if body.session_id is not None:
        get_session(tx, workspace, body.session_id)
    if body.scope is not None:
        return SearchArea(found.id, scope_rows(tx, workspace, body.scope))
    return SearchArea(found.id, session_rows(tx, workspace, names))


def _session_id(tx: Tx, workspace: str, body: WorkspaceDialectic) -> int | None:
    return None if body.session_id is None else int(get_session(tx, workspace, body.session_id).id)


async def _respond(
    here: Server, workspace: str, question: SearchQuestion, found: OfflineAnswer, body: WorkspaceDialectic
) -> Response:
    """Answer with the model of the workspace if it has one. The database is not locked meanwhile."""
    offline, bounds = found
    model = here.models.find(workspace, bounds.place.workspace_id)
    if model is None:
        return _response(offline, body)
    access = MemoryAccess(here.read, lambda text: here.ask(workspace, text))
    reader = MemoryReader(here.vectors, bounds, hears_guests=model.may_hear_guests)
    reasoner = Reasoner(model, access, reader, question, body.reasoning_level, offline)
    if body.stream and body.response_format is None:
        return StreamingResponse(_stream(reasoner.stream(), body), media_type="text/event-stream")
    return _response(await reasoner.answer(body.response_format), body)


def _response(found: PeerAnswer, body: WorkspaceDialectic) -> Response:
    content = found.content
    if body.response_format is not None and not found.is_in_shape:
        content = structure(found, body.response_format)
    if body.stream:
        return StreamingResponse(_stream(_pieces(content or "", found), body), media_type="text/event-stream")
    shown: DialecticAnswer = {"content": content}
    if body.include_evidence:
        shown["evidence"] = _evidence(found)
    return JsonResponse(shown)


async def _pieces(content: str, found: PeerAnswer) -> AsyncGenerator[str | PeerAnswer, None]:
    yield content
    yield found


async def _stream(given: AsyncGenerator[str | PeerAnswer, None], body: WorkspaceDialectic) -> AsyncIterator[str]:
    end: dict[str, Any] = {"done": True}
    async with aclosing(given) as parts:
        async for part in parts:
            if isinstance(part, PeerAnswer):
                if body.include_evidence:
                    end["evidence"] = _evidence(part)
                continue
            for start in range(0, len(part), STREAM_PIECE_CHARS):
                piece = {"delta": {"content": part[start : start + STREAM_PIECE_CHARS]}, "done": False}
                yield f"data: {json.dumps(piece)}\n\n"
    yield f"data: {JsonResponse(end).body.decode()}\n\n"  # type: ignore[union-attr]
