"""The kinds of background jobs: a class per kind, with the fields that its jobs are stored with. To add a kind, add a
class here, its handler in `job_handlers.py`, and an `add_job` where the work is caused.

Jobs of earlier versions wait in existing folders, so a new field needs a default, and an unknown one is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, ClassVar, Literal, TypeVar, get_type_hints

import msgspec

from hermes.types import Json

PeerId = Annotated[int, "peer"]
"""The row id of a peer. Merging and deleting a peer find it in a payload by this type. Every number in a
payload has a type of its own, so that none is overlooked."""
SessionId = Annotated[int, "session"]
MessageId = Annotated[int, "message"]
MessageNumber = Annotated[int, "message number"]
"""The position of a message in its session."""
IndexId = Annotated[int, "index"]
SummaryLength = Literal["short", "long"]
IndexKind = Literal["messages", "conclusions"]


class JobPayload(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored fields of a job, and how the queue treats its kind."""

    kind: ClassVar[str]
    is_tracked: ClassVar[bool] = False
    """The queue status counts these jobs as work units."""
    is_promised: ClassVar[bool] = True
    """Somebody relies on the job, so it is retried without end."""
    leaves_unit: ClassVar[bool] = False
    """After many failures, the job moves to a separate unit, so that the rest of its unit can run."""
    follows_learning: ClassVar[bool] = False
    """The job works on conclusions. It waits until its workspace has derived conclusions from earlier messages, except
    from messages that failed too often.
    """


class DerivationJob(JobPayload, frozen=True):
    """Derive conclusions from messages, for the peers in `job_observers`."""

    kind = "representation"
    is_tracked = leaves_unit = True
    messages: Sequence[MessageId]


class SummaryJob(JobPayload, frozen=True):
    """Summarise a session up to a message."""

    kind = "summary"
    is_tracked = leaves_unit = True
    length: SummaryLength = msgspec.field(name="kind")
    seq: MessageNumber


class DreamJob(JobPayload, frozen=True):
    """Maintain the conclusions of one peer about another."""

    kind = "dream"
    is_tracked = leaves_unit = follows_learning = True
    observer: PeerId
    observed: PeerId
    task: str = msgspec.field(name="kind")


class ScopeJob(JobPayload, frozen=True):
    """Copy the conclusions of a session to a scope that it was added to."""

    kind = "scope"
    leaves_unit = follows_learning = True
    scope: PeerId
    session: SessionId


class SessionDeletionJob(JobPayload, frozen=True):
    """Remove the rows of a deleted session."""

    kind = "delete_session"
    leaves_unit = True
    session: SessionId


class WorkspaceDeletionJob(JobPayload, frozen=True):
    """Remove the rows of a deleted workspace."""

    kind = "delete_workspace"
    leaves_unit = True


class PeerDeletionJob(JobPayload, frozen=True):
    """Remove the rows of a deleted peer."""

    kind = "delete_peer"
    leaves_unit = True
    peer: PeerId


class MessageRemovalJob(JobPayload, frozen=True):
    """Remove a range of messages, both ends included."""

    kind = "delete_messages"
    session: SessionId
    first: MessageNumber
    last: MessageNumber

    @property
    def unit(self) -> str:
        return f"removal:{self.session}:{self.first}:{self.last}"


class PeerMergeJob(JobPayload, frozen=True):
    """Continue a merge of two peers, or undo it."""

    kind = "merge_peers"
    merge: str


class TidyingJob(JobPayload, frozen=True):
    """Remove the rest of deleted text from the text index, or from the database's log."""

    kind = "tidy"
    begin: bool = True
    log: bool = False


class CatchUpJob(JobPayload, frozen=True):
    """Fill new columns of rows of an earlier version."""

    kind = "catch_up"


class RereadingJob(JobPayload, frozen=True):
    """Apply this version's reader to messages of an earlier one."""

    kind = "reread"


class IndexingJob(JobPayload, frozen=True):
    """Build the vector index of a large scope."""

    kind = "index"
    scope_kind: IndexKind = msgspec.field(name="kind")
    id: IndexId


class WebhookJob(JobPayload, frozen=True):
    """Deliver an event to an endpoint."""

    kind = "webhook"
    is_promised = False
    url: str
    body: dict[str, Json]


PAYLOADS: dict[str, type[JobPayload]] = {payload.kind: payload for payload in JobPayload.__subclasses__()}
P = TypeVar("P", bound=JobPayload)
TRACKED, PROMISED, APART, AFTER_LEARNING = (
    tuple(kind for kind, payload in PAYLOADS.items() if getattr(payload, trait))
    for trait in ("is_tracked", "is_promised", "leaves_unit", "follows_learning")
)


def write_payload(payload: JobPayload) -> str:
    return msgspec.json.encode(payload).decode()


def read_payload(payload: type[P], stored: str) -> P:
    """Return a stored payload. Raise msgspec.ValidationError if it does not fit its kind."""
    return msgspec.json.decode(stored, type=payload)


def fields_naming(payload: JobPayload, peer_id: int) -> list[str]:
    """Return the fields of a payload that name a peer."""
    return [name for name in peer_fields(type(payload)) if getattr(payload, name) == peer_id]


@cache
def peer_fields(payload: type[JobPayload]) -> list[str]:
    """Return the fields of a kind that name peers."""
    return [name for name, hint in get_type_hints(payload, include_extras=True).items() if hint == PeerId]


NAMING_PEERS = tuple(kind for kind, payload in PAYLOADS.items() if peer_fields(payload))
