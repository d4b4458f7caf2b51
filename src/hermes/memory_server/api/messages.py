"""Routes for messages: append, upload, list, get, update."""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import datetime
from typing import Annotated, Any

from fastapi import File, Form, Response, UploadFile
from pydantic import Field, ValidationError

from hermes.memory_server import limits, times
from hermes.memory_server.api.auth import Member, OwnSession
from hermes.memory_server.api.bodies import (
    Detail,
    Filter,
    JsonResponse,
    JsonText,
    Message,
    Page,
    Reasoning,
    show_message,
    show_page,
)
from hermes.memory_server.api.clean import Body, MessageText, Metadata, Name
from hermes.memory_server.api.guarded_route import new_router
from hermes.memory_server.api.once import MESSAGE_KEY, KeyHeader, asked
from hermes.memory_server.api.server import Paging, Server, ServerDep
from hermes.memory_server.db.database import JsonMap, Tx
from hermes.memory_server.engine import messages as engine
from hermes.memory_server.engine.answers import KeyedRequest
from hermes.memory_server.engine.messages import MessageDraft, prepare_drafts
from hermes.memory_server.engine.once import WrittenStamp, append_once
from hermes.memory_server.faults import Invalid, TooLarge
from hermes.memory_server.threads import compute

router = new_router("messages")
ROOT = "/v3/workspaces/{workspace_id}/sessions/{session_id}/messages"
# Its warnings about broken forms would fill the log; the client gets them in the response.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


class MessageConfiguration(Body):
    """Configuration of one message."""

    reasoning: Reasoning | None = None


class MessageCreate(Body):
    """A message to append."""

    content: MessageText
    peer_id: Name
    metadata: Metadata | None = None
    configuration: MessageConfiguration | None = None
    created_at: datetime | None = None


class MessageBatchCreate(Body):
    """Messages to append, in order."""

    messages: Annotated[list[MessageCreate], Field(min_length=1, max_length=limits.MESSAGES_PER_CALL)]


class MessageUpdate(Body):
    """Changes to a message."""

    metadata: Metadata | None = None


def _written(workspace_name: str, session_name: str, draft: MessageDraft, stamp: WrittenStamp) -> Message:
    """Return a message as stored, without reading it back."""
    return {
        "id": stamp.public_id,
        "content": draft.content,
        "peer_id": draft.peer,
        "session_id": session_name,
        "metadata": JsonText(draft.metadata),
        "created_at": times.to_wire(stamp.created_at),
        "workspace_id": workspace_name,
        "token_count": draft.token_count,
    }


@router.post(ROOT, status_code=201, response_model=list[Message])
@router.post(f"{ROOT}/", status_code=201, response_model=list[Message], include_in_schema=False)
async def create_messages(
    workspace_id: str,
    session_id: str,
    body: MessageBatchCreate,
    here: ServerDep,
    _: OwnSession,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Append messages in order. A missing session, peer or membership is created."""
    drafts = [_draft(new, key=asked("message", _message_key(new.metadata), new)) for new in body.messages]
    return await _append(here, workspace_id, session_id, drafts, asked("messages", idempotency_key, body))


@router.post(
    f"{ROOT}/upload",
    status_code=201,
    response_model=list[Message],
    responses={415: {"model": Detail}},
)
async def upload_messages(
    workspace_id: str,
    session_id: str,
    here: ServerDep,
    _: OwnSession,
    file: Annotated[UploadFile, File()],
    peer_id: Annotated[str, Form()],
    metadata: Annotated[str | None, Form()] = None,
    configuration: Annotated[str | None, Form()] = None,
    created_at: Annotated[str | None, Form()] = None,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Append the text of an uploaded file as one or more messages."""
    content = await file.read(limits.FILE_BYTES + 1)
    if len(content) > limits.FILE_BYTES:
        raise TooLarge(f"File exceeds maximum of {limits.FILE_BYTES} bytes")
    common = _form_fields(peer_id, metadata, configuration, created_at)
    facts = {"filename": file.filename, "content_type": file.content_type, "size": len(content)}

    texts = await here.parsers.read(content, file.content_type or "")

    def read() -> list[MessageDraft]:
        told = [json.dumps({**facts, "part": number, "parts": len(texts)}) for number in range(len(texts))]
        return [_draft(_message(text, common), fact) for text, fact in zip(texts, told, strict=True)]

    # All messages of a file share its metadata, so a key in it identifies the file.
    key = idempotency_key or _message_key(common["metadata"])
    given = asked("upload", key, (common, facts, hashlib.blake2b(content).hexdigest()))
    return await _append(here, workspace_id, session_id, await compute(read), given)


@router.post(f"{ROOT}/list", response_model=Page[Message])
async def list_messages(
    workspace_id: str, session_id: str, here: ServerDep, page: Paging, _: Member, body: Filter | None = None
) -> Response:
    """List the messages of a session in order."""
    filters = body.filters if body else None

    def run(tx: Tx) -> Response:  # serialized in the reader thread, since a page may take milliseconds
        return show_page(engine.list_messages(tx, workspace_id, session_id, filters, page), show_message)

    return await here.read(run)


@router.get(f"{ROOT}/{{message_id}}", response_model=Message)
async def get_message(workspace_id: str, session_id: str, message_id: str, here: ServerDep, _: Member) -> Response:
    """Return one message."""
    row = await here.read(lambda tx: engine.get_message(tx, workspace_id, session_id, message_id))
    return JsonResponse(show_message(row))


@router.put(f"{ROOT}/{{message_id}}", response_model=Message)
async def update_message(
    workspace_id: str, session_id: str, message_id: str, body: MessageUpdate, here: ServerDep, _: OwnSession
) -> Response:
    """Replace the metadata of a message."""
    row = await here.write(
        lambda tx: engine.set_message_metadata(tx, workspace_id, session_id, message_id, body.metadata)
    )
    return JsonResponse(show_message(row))


async def _append(
    here: Server, workspace: str, session: str, given: list[MessageDraft], key: KeyedRequest | None
) -> Response:
    drafts = await prepare_drafts(here.embedder, given)
    # Appends to one workspace wait for each other.
    stamps = await here.write(lambda tx: append_once(tx, workspace, session, drafts, here.now(), key), workspace)
    made = zip(drafts, stamps, strict=True)
    return JsonResponse([_written(workspace, session, draft, stamp) for draft, stamp in made], 201)


def _message_key(metadata: JsonMap | None) -> str | None:
    """Return the idempotency key in a message's metadata, if any."""
    key = (metadata or {}).get(MESSAGE_KEY)
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= limits.KEY_CHARS):
        raise Invalid(f"metadata.{MESSAGE_KEY} must be a text of 1 to {limits.KEY_CHARS} characters")
    return key


def _draft(message: MessageCreate, file: str | None = None, key: KeyedRequest | None = None) -> MessageDraft:
    return MessageDraft(
        message.content,
        message.peer_id,
        metadata=json.dumps(message.metadata or {}),
        configuration=message.configuration.model_dump(exclude_none=True) if message.configuration else {},
        created_at=times.to_micros(message.created_at) if message.created_at else None,
        file=file,
        asked=key,
    )


def _form_fields(
    peer_id: str, metadata: str | None, configuration: str | None, created_at: str | None
) -> dict[str, Any]:
    given: dict[str, Any] = {"peer_id": peer_id, "created_at": created_at or None}
    for name, value in (("metadata", metadata), ("configuration", configuration)):
        try:
            given[name] = json.loads(value) if value else None
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{name} is not JSON: {error}") from error
    _message("", given)
    return given


def _message(text: str, fields: dict[str, Any]) -> MessageCreate:
    try:
        return MessageCreate(content=text, **fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise Invalid(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
