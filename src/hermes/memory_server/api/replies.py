"""Models of responses, for /openapi.json only: `wire` serializes rows directly."""

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
    """The times at which a conclusion was stated, learned and valid, and what it changed or was changed by."""

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
    """A hidden conclusion, with the reason: another one has the same content, a premise no longer holds, or rereading
    its message gave a different result."""

    id: str
    why: Literal["same", "premise", "reread"]


class Rereading(BaseModel):
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


class Dream(BaseModel):
    """A report of a dream."""

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
    """A conclusion about a peer that always holds, with its kind."""

    kind: Literal["name", "instruction", "identity", "health", "family", "wish"]


class FoundEvidence(BaseModel):
    """Messages relevant to a question, conclusions that no message states, and conclusions that always hold, the most
    relevant first. `is_told` is false if memory probably lacks the answer to the question."""

    messages: list[Found]
    conclusions: list[Conclusion]
    standing: list[StandingConclusion]
    is_told: bool


class ViewContext(BaseModel):
    """The content of one view. `card` is null unless requested."""

    representation: str
    card: list[str] | None = None


class ReadContext(BaseModel):
    """The summary of a session, and the content of each view, in the order of the request."""

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
    """The reason of a refusal: a sentence, or a list of problems with their locations."""

    detail: str | list[dict[str, Any]]


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int = Field(ge=0)
    page: int = Field(ge=1)
    size: int = Field(ge=1)
    pages: int = Field(ge=0)
