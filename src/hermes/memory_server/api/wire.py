"""Serialization of rows to JSON. Stored JSON is passed through without parsing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
from sqlalchemy import Row
from starlette.responses import Response

from hermes.memory_server import times
from hermes.memory_server.engine.conclusions import FORGOTTEN_AT_KEY, NewConclusion
from hermes.memory_server.engine.dialectic import PeerAnswer
from hermes.memory_server.engine.jobs import Counts, QueueCounts
from hermes.memory_server.engine.merging import UNDO_WINDOW_MICROSECONDS as MERGE_KEPT
from hermes.memory_server.engine.messages import MessageDraft
from hermes.memory_server.engine.once import WrittenStamp
from hermes.memory_server.engine.paging import Paged
from hermes.memory_server.engine.summaries import TYPES
from hermes.memory_server.engine.truth import valid_from
from hermes.memory_server.ids import SCOPE_PREFIX

WireObject = dict[str, Any]
raw = orjson.Fragment
"""JSON text of a column, passed through."""
EVIDENCE = ("id", "session_id", "peer_id", "created_at")
"""Fields of a message that was evidence for an answer."""


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def page(paged: Paged, show: Callable[[Row[Any]], WireObject]) -> JsonResponse:
    asked = paged.page
    items = [show(row) for row in paged.rows]
    return JsonResponse(
        {"items": items, "total": paged.total, "page": asked.number, "size": asked.size, "pages": paged.pages}
    )


def workspace(row: Row[Any]) -> WireObject:
    return {
        "id": row.name,
        "uid": row.uid,
        "metadata": raw(row.metadata),
        "configuration": raw(row.configuration),
        "created_at": times.to_wire(row.created_at),
    }


def peer(row: Row[Any]) -> WireObject:
    return {
        "id": row.name,
        "uid": row.uid,
        "workspace_id": row.workspace,
        "created_at": times.to_wire(row.created_at),
        "metadata": raw(row.metadata),
        "configuration": raw(row.configuration),
    }


def session(row: Row[Any]) -> WireObject:
    return {
        "id": row.name,
        "uid": row.uid,
        "is_active": bool(row.is_active),
        "workspace_id": row.workspace,
        "metadata": raw(row.metadata),
        "configuration": raw(row.configuration),
        "created_at": times.to_wire(row.created_at),
    }


def message(row: Row[Any]) -> WireObject:
    return {
        "id": row.public_id,
        "content": row.content,
        "peer_id": row.peer,
        "session_id": row.session,
        "metadata": raw(row.metadata),
        "created_at": times.to_wire(row.created_at),
        "workspace_id": row.workspace,
        "token_count": row.token_count,
    }


def superseded(row: Row[Any]) -> WireObject:
    """A statement of a message that a later one changed."""
    return {"content": row.content, "newer": row.newer_content, "newer_said_at": times.to_wire(row.newer_said_at)}


def written(workspace_name: str, session_name: str, draft: MessageDraft, stamp: WrittenStamp) -> WireObject:
    """Return a message as stored, without reading it back."""
    return {
        "id": stamp.public_id,
        "content": draft.content,
        "peer_id": draft.peer,
        "session_id": session_name,
        "metadata": raw(draft.metadata),
        "created_at": times.to_wire(stamp.created_at),
        "workspace_id": workspace_name,
        "token_count": draft.token_count,
    }


def concluded(new: NewConclusion, stamp: WrittenStamp) -> WireObject:
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


def conclusion(row: Row[Any]) -> WireObject:
    return {
        "id": row.public_id,
        "content": row.content,
        "observer_id": row.observer,
        "observed_id": row.observed,
        "session_id": row.session,
        "level": row.level,
        "created_at": times.to_wire(row.created_at),
        "source_ids": None if row.source_ids is None else raw(row.source_ids),
        "times_derived": row.mentions,
        "valid_until": _moment(row.valid_until),
        "superseded_by": row.newer,
    }


def conclusion_version(row: Row[Any]) -> WireObject:
    return {"content": row.content, "replaced_at": times.to_wire(row.replaced_at)}


def supersession(row: Row[Any]) -> WireObject:
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
        "undone_at": _moment(row.undone_at),
    }


def history(row: Row[Any], pairs: Iterable[Row[Any]]) -> WireObject:
    """Return the times of a conclusion, and the pairs in which it takes part."""
    return {
        "id": row.public_id,
        "said_at": times.to_wire(row.created_at),
        "happened_at": _moment(row.happened_at),
        "learnt_at": _moment(row.learnt_at),
        "valid_from": times.to_wire(valid_from(row)),
        "valid_until": _moment(row.valid_until),
        "superseded_by": row.newer,
        "forgotten_at": orjson.loads(row.metadata).get(FORGOTTEN_AT_KEY),
        "supersessions": [supersession(pair) for pair in pairs],
    }


def _moment(micros: int | None) -> str | None:
    return None if micros is None else times.to_wire(micros)


def dream(row: Row[Any]) -> WireObject:
    report = orjson.loads(row.report)
    return {
        "id": row.public_id,
        "created_at": times.to_wire(row.created_at),
        "undone_at": _moment(row.undone_at),
        "added": report["added"],
        "retired": [{"id": one["id"], "why": one["why"]} for one in report["retired"]],
    }


def merge(row: Row[Any]) -> WireObject:
    return {
        "id": row.public_id,
        "peer_id": row.from_name,
        "into": row.into_name,
        "state": row.state,
        "created_at": times.to_wire(row.created_at),
        "undo_until": times.to_wire(row.created_at + MERGE_KEPT),
    }


def summary(row: Row[Any] | None) -> WireObject | None:
    if row is None:
        return None
    return {
        "content": row.content,
        "message_id": row.public_id,
        "summary_type": TYPES[row.kind],
        "created_at": times.to_wire_seconds(row.created_at),
        "token_count": row.token_count,
    }


def scope(row: Row[Any]) -> WireObject:
    return {
        "id": row.name.removeprefix(SCOPE_PREFIX),
        "metadata": raw(row.metadata),
        "created_at": times.to_wire(row.created_at),
    }


def webhook(row: Row[Any]) -> WireObject:
    return {
        "id": row.public_id,
        "workspace_id": row.workspace,
        "url": row.url,
        "created_at": times.to_wire(row.created_at),
    }


def evidence(found: PeerAnswer) -> WireObject:
    """Return the evidence that was read for an answer."""
    return {
        "conclusions": [_evidence_conclusion(row) for row in found.conclusions],
        "messages": [{key: shown[key] for key in EVIDENCE} for shown in map(message, found.messages)],
        "tool_calls": list(found.tool_calls),
        "reasoning_trace_id": None,
    }


def _evidence_conclusion(row: Row[Any]) -> WireObject:
    shown = conclusion(row)
    for name in ("times_derived", "valid_until", "superseded_by"):
        del shown[name]
    return {**shown, "source_ids": raw(row.source_ids or "[]")}


def queue_status(status: QueueCounts) -> WireObject:
    sessions = None
    if status.sessions is not None:
        sessions = {uid: {"session_id": uid, **_counts(counts)} for uid, counts in status.sessions.items()}
    return {
        **_counts(status.all),
        "sessions": sessions,
        "promised": status.promised,
        "failing": status.failing,
        "waiting": status.waiting,
    }


def _counts(counts: Counts) -> WireObject:
    return {
        "total_work_units": counts.total,
        "completed_work_units": counts.completed,
        "in_progress_work_units": counts.running,
        "pending_work_units": counts.pending,
    }
