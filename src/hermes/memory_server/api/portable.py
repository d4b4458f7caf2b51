"""Routes for export and import of a workspace with ids and times, and the models of imported items, one for each
section."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import AfterValidator, BaseModel, Field, PlainSerializer, ValidationError
from typing_extensions import TypedDict

from hermes.memory_server import limits, times
from hermes.memory_server.api.auth import WorkspaceCaller
from hermes.memory_server.api.bodies import CleanConfiguration, JsonObject, JsonResponse
from hermes.memory_server.api.clean import (
    Body,
    CleanText,
    ConclusionText,
    Filters,
    MessageText,
    Metadata,
    Name,
    clean_text,
)
from hermes.memory_server.api.conclusions import check_size
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.server import Server, ServerDep
from hermes.memory_server.api.webhooks import WebhookUrl
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine.export import export_part
from hermes.memory_server.engine.importing import PreparedItem, import_part
from hermes.memory_server.engine.messages import MessageDraft, prepare_drafts
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Invalid

WholeNumber = Annotated[int, Field(ge=0, le=limits.MAX_COUNT)]
Time = Annotated[datetime, PlainSerializer(times.to_micros)]
SummaryText = Annotated[str, Field(max_length=limits.SUMMARY_CHARS), AfterValidator(clean_text)]
PublicId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
PublicIds = Annotated[list[PublicId], Field(max_length=limits.MAX_SOURCES)]


class ImportedNamed(Body):
    """A workspace or session."""

    id: Name
    metadata: Metadata = Field(default_factory=dict)
    configuration: CleanConfiguration
    created_at: Time


class ImportedPeer(Body):
    """A peer or scope."""

    id: Name
    kind: Literal["peer", "scope"] = "peer"
    metadata: Metadata = Field(default_factory=dict)
    configuration: Metadata = Field(default_factory=dict)
    created_at: Time


class ImportedMembership(Body):
    """One stay of a peer in a session."""

    session_id: Name
    peer_id: Name
    observe_me: bool | None = None
    observe_others: bool | None = None
    joined_seq: WholeNumber = 0
    left_seq: WholeNumber | None = None
    joined_at: Time


class ImportedMessage(Body):
    id: PublicId
    session_id: Name
    peer_id: Name
    seq: WholeNumber
    content: MessageText
    metadata: Metadata = Field(default_factory=dict)
    created_at: Time
    file: Filters | None = None


class ImportedDeparture(Body):
    """A peer that has left a session."""

    session_id: Name
    peer_id: Name


class ImportedScopes(Body):
    session_id: Name
    scopes: Annotated[list[Name], Field(max_length=limits.MAX_SOURCES)]


class ImportedVersion(Body):
    """An earlier text of a conclusion."""

    content: ConclusionText
    replaced_at: Time


class ImportedPair(Body):
    """An older conclusion that another one changed or contradicts."""

    id: PublicId
    kind: Literal["change", "contradiction"]
    why: CleanText
    created_at: Time
    undone_at: Time | None = None


class ImportedConclusion(Body):
    id: PublicId
    observer_id: CleanText
    observed_id: CleanText
    session_id: Name | None = None
    level: Literal["explicit", "deductive", "inductive", "contradiction"]
    content: ConclusionText
    metadata: Metadata = Field(default_factory=dict)
    created_at: Time
    times_derived: Annotated[int, Field(ge=1, le=limits.MAX_COUNT)] = 1
    source_ids: PublicIds | None = None
    message_ids: PublicIds = Field(default_factory=list)
    versions: Annotated[list[ImportedVersion], Field(max_length=100)] = Field(default_factory=list)
    supersedes: Annotated[list[ImportedPair], Field(max_length=limits.MAX_SOURCES)] = Field(default_factory=list)


class ImportedCard(Body):
    observer_id: CleanText
    observed_id: CleanText
    lines: Annotated[list[CleanText], Field(max_length=limits.CARD_LINES)]
    written_by: Literal["person", "dream"]
    updated_at: Time


class ImportedSummary(Body):
    """A summary of a session, up to a message."""

    kind: Literal["short", "long"]
    content: SummaryText
    message_id: PublicId
    created_at: Time


class ImportedSummaries(Body):
    session_id: Name
    summaries: Annotated[list[ImportedSummary], Field(max_length=2)]


class ImportedWebhook(Body):
    url: WebhookUrl
    created_at: Time | None = None


MODELS: dict[str, type[Body]] = {
    "workspace": ImportedNamed,
    "peers": ImportedPeer,
    "sessions": ImportedNamed,
    "memberships": ImportedMembership,
    "messages": ImportedMessage,
    "departures": ImportedDeparture,
    "scopes": ImportedScopes,
    "conclusions": ImportedConclusion,
    "cards": ImportedCard,
    "summaries": ImportedSummaries,
    "webhooks": ImportedWebhook,
}


class ImportPart(Body):
    """Items of one section. Invalid items are reported in the response; the others are imported."""

    items: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=limits.MAX_IMPORT_ITEMS)]


router = new_router("extensions")
ROOT = "/v3/workspaces/{workspace_id}/ext"
SectionName = Literal[
    "workspace",
    "peers",
    "sessions",
    "memberships",
    "messages",
    "departures",
    "scopes",
    "conclusions",
    "cards",
    "summaries",
    "webhooks",
]


class ExportPart(TypedDict):
    items: list[JsonObject]
    after: int | None


class RefusedItem(TypedDict):
    item: int
    reason: str


class Imported(TypedDict):
    added: int
    present: int
    refused: list[RefusedItem]


@router.get(f"{ROOT}/export/{{section}}", response_model=ExportPart)
async def export_section(
    workspace_id: str,
    section: SectionName,
    here: ServerDep,
    _: WorkspaceCaller,
    after: Annotated[int, Query(ge=0, le=limits.MAX_INTEGER)] = 0,
) -> Response:
    """Return one part of a section, in order. Pass `after` of the response to get the next part."""

    def run(tx: Tx) -> Response:
        items, following = export_part(tx, get_workspace(tx, workspace_id).id, section, after)
        return JsonResponse(ExportPart(items=items, after=following))

    return await here.read(run)


@router.post(f"{ROOT}/import/{{section}}", response_model=Imported)
async def import_section(
    workspace_id: str, section: SectionName, body: ImportPart, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Import items with their ids and times. Items that already exist are unchanged."""
    refused: list[tuple[int, str]] = []
    given: dict[int, JsonMap] = {}
    for number, item in enumerate(body.items):
        try:
            given[number] = _plain(MODELS[section].model_validate(item))
            if section == "conclusions":
                await check_size(given[number]["content"])
        except (ValidationError, Invalid) as error:
            given.pop(number, None)
            refused.append((number, _reason(error)))
    numbers = [*given]
    prepared = await _prepare(here, section, [*given.values()])
    if section == "workspace" and any(item["id"] != workspace_id for item in given.values()):
        raise Invalid("the item describes another workspace than the path")
    added = present = 0
    if prepared:
        outcome = await here.write(lambda tx: import_part(tx, workspace_id, section, prepared, here.now()))
        added, present = outcome.added, outcome.present
        refused += [(numbers[number], reason) for number, reason in outcome.refused]
    told = [RefusedItem(item=number, reason=reason) for number, reason in sorted(refused)]
    return JsonResponse(Imported(added=added, present=present, refused=told))


async def _prepare(here: Server, section: str, items: Sequence[JsonMap]) -> list[PreparedItem]:
    """Return the items with their tokens and vectors."""
    if section == "messages":
        drafts = await prepare_drafts(here.embedder, [_draft(item) for item in items])
        return [PreparedItem(item, draft=draft) for item, draft in zip(items, drafts, strict=True)]
    if section == "conclusions":
        vectors = await here.embedder.embed([item["content"] for item in items])
        return [PreparedItem(item, vector=to_blob(vector)) for item, vector in zip(items, vectors, strict=True)]
    return [PreparedItem(item) for item in items]


def _draft(item: JsonMap) -> MessageDraft:
    file = None if item["file"] is None else json.dumps(item["file"])
    return MessageDraft(item["content"], item["peer_id"], json.dumps(item["metadata"]), file=file)


def _plain(item: BaseModel) -> dict[str, Any]:
    """Return an item as the engine expects it, with only the given fields of a configuration."""
    plain = item.model_dump()
    if isinstance(item, ImportedNamed):
        plain["configuration"] = item.configuration.given()
    return plain


def _reason(error: ValidationError | Invalid) -> str:
    if isinstance(error, Invalid):
        return error.reason
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[: limits.INPUT_CHARS]
