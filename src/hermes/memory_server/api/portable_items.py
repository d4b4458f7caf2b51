"""What an import may say: one model for the items of each section."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer

from hermes.memory_server import limits, times
from hermes.memory_server.api.body import Body
from hermes.memory_server.api.clean import CleanText, ConclusionText, Filters, MessageText, Metadata, Name, clean_text
from hermes.memory_server.api.schemas import CleanConfiguration

WholeNumber = Annotated[int, Field(ge=0, le=limits.LARGEST_COUNT)]
Time = Annotated[datetime, PlainSerializer(times.to_micros)]
SummaryText = Annotated[str, Field(max_length=limits.SUMMARY_CHARS), AfterValidator(clean_text)]
PublicId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
PublicIds = Annotated[list[PublicId], Field(max_length=limits.SOURCES)]


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
    """A stay of a peer in a session."""

    session_id: Name
    peer_id: Name
    observe_me: bool | None = None
    observe_others: bool | None = None
    joined_seq: WholeNumber = 0
    left_seq: WholeNumber | None = None
    joined_at: Time


class ImportedMessage(Body):
    """A message."""

    id: PublicId
    session_id: Name
    peer_id: Name
    seq: WholeNumber
    content: MessageText
    metadata: Metadata = Field(default_factory=dict)
    created_at: Time
    file: Filters | None = None


class ImportedDeparture(Body):
    """Who is not in a session any more."""

    session_id: Name
    peer_id: Name


class ImportedScopes(Body):
    """The scopes of a session."""

    session_id: Name
    scopes: Annotated[list[Name], Field(max_length=limits.SOURCES)]


class ImportedVersion(Body):
    """What a conclusion said before."""

    content: ConclusionText
    replaced_at: Time


class ImportedConclusion(Body):
    """A conclusion."""

    id: PublicId
    observer_id: CleanText
    observed_id: CleanText
    session_id: Name | None = None
    level: Literal["explicit", "deductive", "inductive", "contradiction"]
    content: ConclusionText
    metadata: Metadata = Field(default_factory=dict)
    created_at: Time
    times_derived: Annotated[int, Field(ge=1, le=limits.LARGEST_COUNT)] = 1
    source_ids: PublicIds | None = None
    message_ids: PublicIds = Field(default_factory=list)
    versions: Annotated[list[ImportedVersion], Field(max_length=100)] = Field(default_factory=list)


class ImportedCard(Body):
    """A card."""

    observer_id: CleanText
    observed_id: CleanText
    lines: Annotated[list[CleanText], Field(max_length=limits.CARD_LINES)]
    written_by: Literal["person", "dream"]
    updated_at: Time


class ImportedSummary(Body):
    """A summary of a session up to a message."""

    kind: Literal["short", "long"]
    content: SummaryText
    message_id: PublicId
    created_at: Time


class ImportedSummaries(Body):
    """The summaries of a session."""

    session_id: Name
    summaries: Annotated[list[ImportedSummary], Field(max_length=2)]


class ImportedWebhook(Body):
    """Where to be told of events."""

    url: CleanText
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
    """Items of one section. One that cannot be is told in the answer; the others are taken."""

    items: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=limits.IMPORTED)]
