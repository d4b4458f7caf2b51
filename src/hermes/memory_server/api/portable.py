"""Routes that carry a workspace away and bring it back, with ids and times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, ValidationError

from hermes.memory_server import limits
from hermes.memory_server.api import replies, wire
from hermes.memory_server.api.auth import WorkspaceCaller
from hermes.memory_server.api.conclusions import check_size
from hermes.memory_server.api.portable_items import MODELS, ImportedNamed, ImportPart
from hermes.memory_server.api.server import Server, ServerDep, new_router
from hermes.memory_server.embedder import to_blob
from hermes.memory_server.engine.drafts import MessageDraft, prepare_drafts
from hermes.memory_server.engine.export import export_part
from hermes.memory_server.engine.importing import PreparedItem, import_part
from hermes.memory_server.engine.workspaces import get_workspace
from hermes.memory_server.faults import Invalid

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


@router.get(f"{ROOT}/export/{{section}}", response_model=replies.ExportPart)
async def export_section(
    workspace_id: str,
    section: SectionName,
    here: ServerDep,
    _: WorkspaceCaller,
    after: Annotated[int, Query(ge=0, le=limits.LARGEST_INTEGER)] = 0,
) -> Response:
    """A part of a section, in order; `after` of the answer begins the next one."""
    part = await here.read(lambda tx: export_part(tx, get_workspace(tx, workspace_id).id, section, after))
    return wire.JsonResponse({"items": part.items, "after": part.after})


@router.post(f"{ROOT}/import/{{section}}", response_model=replies.Imported)
async def import_section(
    workspace_id: str, section: SectionName, body: ImportPart, here: ServerDep, _: WorkspaceCaller
) -> Response:
    """Take in items with their ids and times; what is there already stays as it is."""
    refused: list[tuple[int, str]] = []
    given: dict[int, Mapping[str, Any]] = {}
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
        raise Invalid("the item is another workspace")
    added = present = 0
    if prepared:
        outcome = await here.write(lambda tx: import_part(tx, workspace_id, section, prepared, here.now()))
        added, present = outcome.added, outcome.present
        refused += [(numbers[number], reason) for number, reason in outcome.refused]
    told = [{"item": number, "reason": reason} for number, reason in sorted(refused)]
    return wire.JsonResponse({"added": added, "present": present, "refused": told})


async def _prepare(here: Server, section: str, items: Sequence[Mapping[str, Any]]) -> list[PreparedItem]:
    """The items with their tokens and vectors."""
    if section == "messages":
        drafts = await prepare_drafts(here.embedder, [_draft(item) for item in items])
        return [PreparedItem(item, draft=draft) for item, draft in zip(items, drafts, strict=True)]
    if section == "conclusions":
        vectors = await here.embedder.embed([item["content"] for item in items])
        return [PreparedItem(item, vector=to_blob(vector)) for item, vector in zip(items, vectors, strict=True)]
    return [PreparedItem(item) for item in items]


def _draft(item: Mapping[str, Any]) -> MessageDraft:
    file = None if item["file"] is None else json.dumps(item["file"])
    return MessageDraft(item["content"], item["peer_id"], json.dumps(item["metadata"]), file=file)


def _plain(item: BaseModel) -> dict[str, Any]:
    """An item as the engine takes it; a configuration as it was said."""
    plain = item.model_dump()
    if isinstance(item, ImportedNamed):
        plain["configuration"] = item.configuration.given()
    return plain


def _reason(error: ValidationError | Invalid) -> str:
    if isinstance(error, Invalid):
        return error.reason
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[: limits.INPUT_CHARS]
