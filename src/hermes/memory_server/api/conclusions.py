"""Routes of conclusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import AliasChoices, Field
from sqlalchemy import ColumnElement, Row

from hermes.memory_server import limits, times
from hermes.memory_server.api.auth import WorkspaceCaller
from hermes.memory_server.api.bodies import (
    Conclusion,
    Distance,
    Filter,
    JsonResponse,
    Limit,
    Page,
    show_conclusion,
    show_page,
)
from hermes.memory_server.api.clean import Body, CleanText, ConclusionText, Filters, SearchText
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import KeyHeader, asked
from hermes.memory_server.api.server import Paging, ServerDep
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.statements import in_parts
from hermes.memory_server.db.tables import conclusions
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine import conclusions as engine
from hermes.memory_server.engine.conclusions import NewConclusion
from hermes.memory_server.engine.filters import build_filter
from hermes.memory_server.engine.once import WrittenStamp, conclude_once
from hermes.memory_server.engine.peers import find_peer, follow_names
from hermes.memory_server.engine.recall import View, query_views
from hermes.memory_server.engine.workspaces import workspace_id_of
from hermes.memory_server.faults import Invalid
from hermes.memory_server.threads import compute
from hermes.memory_server.tokens import count_tokens

router = new_router("conclusions")
ROOT = "/v3/workspaces/{workspace_id}/conclusions"
INLINE_COUNT_CHARS = 500
"""Shorter texts are counted directly: a thread would take longer."""
FIRST_FILTERED_ROWS = 1000
"""Nearest rows that are checked first if a filter has more conditions than observer and observed."""


class ConclusionCreate(Body):
    """A conclusion to store."""

    content: ConclusionText
    observer_id: CleanText
    observed_id: CleanText
    session_id: CleanText | None = None
    hermes_key: Annotated[CleanText, Field(min_length=1, max_length=limits.KEY_CHARS)] | None = None


class ConclusionBatchCreate(Body):
    """Conclusions to store. `observations` is the older name of the field."""

    conclusions: Annotated[
        list[ConclusionCreate],
        Field(
            min_length=1,
            max_length=limits.CONCLUSIONS_PER_CALL,
            validation_alias=AliasChoices("conclusions", "observations"),
        ),
    ]


class ConclusionQuery(Body):
    """A search in conclusions. Filters must name observer and observed."""

    query: SearchText
    top_k: Limit = 10
    distance: Distance | None = None
    filters: Filters | None = None


def _concluded(new: NewConclusion, stamp: WrittenStamp) -> Conclusion:
    """Return a conclusion as stored, without reading it back."""
    return {
        "id": stamp.public_id,
        "content": new.content,
        "observer_id": new.observer,
        "observed_id": new.observed,
        "session_id": new.session,
        "level": "explicit",
        "created_at": times.to_wire(stamp.created_at),
        "source_ids": None,
        "times_derived": 1,
        "valid_until": None,
        "superseded_by": None,
    }


@router.post(ROOT, status_code=201, response_model=list[Conclusion])
async def create_conclusions(
    workspace_id: str,
    body: ConclusionBatchCreate,
    here: ServerDep,
    _: WorkspaceCaller,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Store conclusions. Their peers and sessions must exist."""
    for new in body.conclusions:
        await check_size(new.content)
    vectors = await here.embedder.embed([new.content for new in body.conclusions])
    given = [_prepared(new, to_blob(vector)) for new, vector in zip(body.conclusions, vectors, strict=True)]
    whole = asked("conclusions", idempotency_key, body)
    stamps = await here.write(lambda tx: conclude_once(tx, workspace_id, given, here.now(), whole))
    return JsonResponse([_concluded(new, stamp) for new, stamp in zip(given, stamps, strict=True)], 201)


def _prepared(new: ConclusionCreate, vector: bytes) -> NewConclusion:
    key = asked("conclusion", new.hermes_key, new)
    return NewConclusion(new.content, new.observer_id, new.observed_id, vector, new.session_id, key)


async def check_size(content: str) -> None:
    """Refuse a conclusion with too many tokens."""
    count = count_tokens(content) if len(content) <= INLINE_COUNT_CHARS else await compute(count_tokens, content)
    if count > limits.CONCLUSION_TOKENS:
        reason = f"Conclusion exceeds maximum of {limits.CONCLUSION_TOKENS} tokens"
        raise RequestValidationError([{"type": "value_error", "loc": ("body", "content"), "msg": reason}])


@router.post(f"{ROOT}/list", response_model=Page[Conclusion])
async def list_conclusions(
    workspace_id: str, here: ServerDep, page: Paging, _: WorkspaceCaller, body: Filter | None = None
) -> Response:
    """List conclusions, newest first."""
    filters = body.filters if body else None
    return await here.read(
        lambda tx: show_page(engine.list_conclusions(tx, workspace_id, filters, page), show_conclusion)
    )


@router.post(f"{ROOT}/query", response_model=list[Conclusion])
async def query(workspace_id: str, body: ConclusionQuery, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return the conclusions of an observer about an observed peer that are closest to the query."""
    rest = dict(body.filters or {})
    observer = _pop_name(rest, "observer")
    observed = _pop_name(rest, "observed")
    question = await here.ask(workspace_id, body.query)

    def run(tx: Tx) -> list[Conclusion]:
        place = workspace_id_of(tx, workspace_id)
        pair = [find_peer(tx, place, name) for name in (observer, observed)]
        condition = build_filter(follow_names(tx, place, rest), engine.FIELDS)
        if pair[0] is None or pair[1] is None:
            return []
        views = [View(pair[0].id, pair[1].id)]
        wanted = body.top_k if not rest else FIRST_FILTERED_ROWS
        while True:
            rows = query_views(tx, here.vectors, views, question, wanted, body.distance)
            fitting = _fitting(tx, rows, condition) if rest else rows
            if len(fitting) >= body.top_k or len(rows) < wanted:
                return [show_conclusion(row) for row in fitting[: body.top_k]]
            wanted *= 8

    return JsonResponse(await here.read(run))


def _fitting(tx: Tx, rows: Sequence[Row[Any]], condition: ColumnElement[bool]) -> list[Row[Any]]:
    """Return the rows that meet the condition, in their order."""
    kept: set[int] = set()
    for part in in_parts([row.id for row in rows]):
        wanted = engine.select_conclusions().where(conclusions.c.id.in_(part), condition)
        kept.update(row.id for row in tx.execute(wanted))
    return [row for row in rows if row.id in kept]


def _pop_name(filters: dict[str, Any], key: str) -> str:
    """Remove `observer`/`observer_id` (or `observed`) from the filter and return the peer that it names."""
    found = [filters.pop(name) for name in (f"{key}_id", key) if name in filters]
    if not found or not all(isinstance(name, str) for name in found):
        raise Invalid(f"filters must name {key}_id")
    return str(found[0])


@router.get(f"{ROOT}/{{conclusion_id}}", response_model=Conclusion)
async def get_conclusion(workspace_id: str, conclusion_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Return one conclusion."""
    row = await here.read(lambda tx: engine.get_conclusion(tx, workspace_id, conclusion_id))
    return JsonResponse(show_conclusion(row))


@router.delete(f"{ROOT}/{{conclusion_id}}", status_code=204)
async def delete_conclusion(workspace_id: str, conclusion_id: str, here: ServerDep, _: WorkspaceCaller) -> Response:
    """Delete one conclusion."""
    await here.write(lambda tx: engine.delete_conclusion(tx, workspace_id, conclusion_id, here.now()))
    return Response(status_code=204)
