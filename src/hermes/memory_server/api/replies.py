"""What answers look like, for /openapi.json. Answers themselves are written straight from rows (`wire`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")


class Workspace(BaseModel):
    id: str
    uid: str
    metadata: dict[str, Any]
    configuration: dict[str, Any]
    created_at: datetime


class Peer(BaseModel):
    id: str
    uid: str
    workspace_id: str
    created_at: datetime
    metadata: dict[str, Any]
    configuration: dict[str, Any]


class Session(BaseModel):
    id: str
    uid: str
    is_active: bool
    workspace_id: str
    metadata: dict[str, Any]
    configuration: dict[str, Any]
    created_at: datetime


class Message(BaseModel):
    id: str
    content: str
    peer_id: str
    session_id: str
    metadata: dict[str, Any]
    created_at: datetime
    workspace_id: str
    token_count: int


class SupersededStatement(BaseModel):
    """A statement that no longer holds, and what its speaker said instead, and when."""

    content: str
    newer: str
    newer_said_at: datetime


class Found(BaseModel):
    """A message that a search found. `certainty` goes from 0 to 1; `about` says whether that is enough. `superseded`
    has the statements of the message that later ones changed."""

    message: Message
    score: float
    certainty: float
    about: bool
    superseded: list[SupersededStatement]


class Conclusion(BaseModel):
    id: str
    content: str
    observer_id: str
    observed_id: str
    session_id: str | None
    level: Literal["explicit", "deductive", "inductive", "contradiction"]
    created_at: datetime
    source_ids: list[str] | None
    times_derived: int
    valid_until: datetime | None = None
    superseded_by: str | None = None


class ConclusionVersion(BaseModel):
    content: str
    replaced_at: datetime


class Supersession(BaseModel):
    """A later conclusion that changed an earlier one, or contradicts it."""

    id: str
    kind: Literal["change", "contradiction"]
    why: str
    older_id: str
    older_content: str
    older_said_at: datetime
    newer_id: str
    newer_content: str
    newer_said_at: datetime
    created_at: datetime
    undone_at: datetime | None


class ConclusionHistory(BaseModel):
    """When a conclusion was said, learnt and held, and what it changed or was changed by."""

    id: str
    said_at: datetime
    happened_at: datetime | None
    learnt_at: datetime | None
    valid_from: datetime
    valid_until: datetime | None
    superseded_by: str | None
    forgotten_at: datetime | None
    supersessions: list[Supersession]


class Retired(BaseModel):
    """A conclusion that was hidden: another says the same, a premise no longer holds, or its message reads differently
    now."""

    id: str
    why: Literal["same", "premise", "reread"]


class Rereading(BaseModel):
    """What reading a workspace again would add, as far as the newest messages tell, and what it did so far. The counts
    of what was done are of all workspaces; `undone` counts reports."""

    messages: int
    looked_at: int
    would_add: int
    examples: list[str]
    was_deleted: bool
    retired: int
    added: int
    undone: int
    left: int


class Dream(BaseModel):
    """What a dream did."""

    id: str
    created_at: datetime
    undone_at: datetime | None
    added: list[str]
    retired: list[Retired]


class MergePreview(BaseModel):
    messages: int
    sessions: int
    conclusions: int
    cards: int


class Merge(BaseModel):
    id: str
    peer_id: str
    into: str
    state: Literal["running", "done", "undoing", "undone"]
    created_at: datetime
    undo_until: datetime


class StandingConclusion(Conclusion):
    """What always holds of a peer, and which kind of thing it is."""

    kind: Literal["name", "instruction", "identity", "health", "family", "wish"]


class FoundEvidence(BaseModel):
    """Messages that fit a question, conclusions that no message says, and what always holds, the worthiest first.
    `is_told` is false for a question whose answer memory was probably not told."""

    messages: list[Found]
    conclusions: list[Conclusion]
    standing: list[StandingConclusion]
    is_told: bool


class ViewContext(BaseModel):
    """What one view holds; no card where none was asked for."""

    representation: str
    card: list[str] | None = None


class ReadContext(BaseModel):
    """The summary of a session, and what each view holds, in the order in which they were named."""

    summary: str | None = None
    views: list[ViewContext]


class Removed(BaseModel):
    deleted: int


class PeerMoved(BaseModel):
    moved: bool


class ExportPart(BaseModel):
    items: list[dict[str, Any]]
    after: int | None


class RefusedItem(BaseModel):
    item: int
    reason: str


class Imported(BaseModel):
    added: int
    present: int
    refused: list[RefusedItem]


class Summary(BaseModel):
    content: str
    message_id: str
    summary_type: str
    created_at: str
    token_count: int


class SessionContext(BaseModel):
    id: str
    messages: list[Message]
    summary: Summary | None
    peer_representation: str | None
    peer_card: list[str] | None


class SessionSummaries(BaseModel):
    id: str
    short_summary: Summary | None
    long_summary: Summary | None


class PeerContext(BaseModel):
    peer_id: str
    target_id: str
    representation: str | None
    peer_card: list[str] | None


class PeerCard(BaseModel):
    peer_card: list[str] | None


class RepresentationResponse(BaseModel):
    representation: str


class SessionPeerConfigResponse(BaseModel):
    observe_me: bool | None
    observe_others: bool | None


class EvidenceConclusion(BaseModel):
    id: str
    level: str
    content: str
    created_at: datetime
    session_id: str | None
    observer_id: str
    observed_id: str
    source_ids: list[str]


class EvidenceMessage(BaseModel):
    id: str
    session_id: str
    peer_id: str
    created_at: datetime


class AnswerEvidence(BaseModel):
    conclusions: list[EvidenceConclusion]
    messages: list[EvidenceMessage]
    tool_calls: list[dict[str, Any]]
    reasoning_trace_id: str | None


class DialecticAnswer(BaseModel):
    content: str | None
    evidence: AnswerEvidence | None = None


class Scope(BaseModel):
    id: str
    metadata: dict[str, Any]
    created_at: datetime


class ScopeStatus(BaseModel):
    backfill_status: dict[str, dict[str, Any]]


class SessionQueueStatus(BaseModel):
    session_id: str | None
    total_work_units: int
    completed_work_units: int
    in_progress_work_units: int
    pending_work_units: int


class PromisedWork(BaseModel):
    waiting: int
    tries: int


class FailingWork(PromisedWork):
    reason: str


class QueueStatus(BaseModel):
    total_work_units: int
    completed_work_units: int
    in_progress_work_units: int
    pending_work_units: int
    sessions: dict[str, SessionQueueStatus] | None
    promised: dict[str, PromisedWork]
    failing: dict[str, FailingWork]
    waiting: dict[str, FailingWork]


class WebhookEndpoint(BaseModel):
    id: str
    workspace_id: str
    url: str
    created_at: datetime


class KeyResponse(BaseModel):
    key: str


class AcceptedResponse(BaseModel):
    message: str


class Detail(BaseModel):
    """Why a request was refused: a sentence, or what is wrong where."""

    detail: str | list[dict[str, Any]]


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int = Field(ge=0)
    page: int = Field(ge=1)
    size: int = Field(ge=1)
    pages: int = Field(ge=0)
