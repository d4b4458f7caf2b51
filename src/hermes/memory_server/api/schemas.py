"""Models of request bodies. Unknown fields are ignored (see `body`), but kept in configurations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    model_validator,
)

from hermes.memory_server import limits
from hermes.memory_server.api.clean import (
    Body,
    CleanText,
    ConclusionText,
    Filters,
    Instructions,
    MessageText,
    Metadata,
    Name,
    QuestionText,
    ScopeName,
    SearchText,
    check_members,
    check_size,
    clean_json,
)
from hermes.memory_server.engine.members import MAX_ALONE_PEERS
from hermes.memory_server.engine.webhooks import check_url

Limit = Annotated[int, Field(ge=1, le=limits.MAX_RESULTS)]
Distance = Annotated[float, Field(ge=0.0, le=1.0)]
Identity = Annotated[Name, Field(validation_alias=AliasChoices("id", "name"))]
"""The field's older name is also accepted."""
ScopeNames = Annotated[list[ScopeName], Field(min_length=1, max_length=limits.MAX_SCOPES)]
WebhookUrl = Annotated[CleanText, AfterValidator(check_url)]


class Reasoning(Body):
    """Settings of reasoning about messages."""

    enabled: bool | None = None
    custom_instructions: Instructions | None = None


class PeerCardOptions(Body):
    """Settings of peer cards: whether they are used and created."""

    use: bool | None = None
    create: bool | None = None
    custom_instructions: Instructions | None = None


class SummaryOptions(Body):
    """Settings of summaries: whether they are made, and after how many messages."""

    enabled: bool | None = None
    messages_per_short_summary: Annotated[int, Field(ge=10, le=1_000_000)] | None = None
    messages_per_long_summary: Annotated[int, Field(ge=20, le=1_000_000)] | None = None
    custom_instructions: Instructions | None = None

    @model_validator(mode="after")
    def check_order(self) -> SummaryOptions:
        """Check that short summaries are more frequent than long ones."""
        short = self.messages_per_short_summary or 20
        long = self.messages_per_long_summary or 60
        if (self.messages_per_short_summary or self.messages_per_long_summary) and short >= long:
            raise ValueError("messages_per_short_summary must be less than messages_per_long_summary")
        return self


class DreamOptions(Body):
    """Settings of dreams."""

    enabled: bool | None = None
    custom_instructions: Instructions | None = None


class DialecticSettings(Body):
    """Settings of answers to questions."""

    custom_instructions: Instructions | None = None


def _clean_extra(value: ConfigurationBody) -> ConfigurationBody:
    extra = clean_json(value.__pydantic_extra__ or {})
    check_size(extra, limits.CONFIGURATION_CHARS, "Configuration")
    return value


class ConfigurationBody(BaseModel):
    """Configuration of a workspace or session."""

    model_config = ConfigDict(extra="allow")

    custom_instructions: Instructions | None = None
    reasoning: Reasoning | None = None
    peer_card: PeerCardOptions | None = None
    summary: SummaryOptions | None = None
    dream: DreamOptions | None = None
    dialectic: DialecticSettings | None = None

    def given(self) -> dict[str, Any]:
        """Return only the fields that were given."""
        return self.model_dump(exclude_unset=True, exclude_none=True)


CleanConfiguration = Annotated[ConfigurationBody, AfterValidator(_clean_extra)]


class MessageConfiguration(Body):
    """Configuration of one message."""

    reasoning: Reasoning | None = None


class WorkspaceCreate(Body):
    """A workspace to get or create."""

    id: Identity
    metadata: Metadata = Field(default_factory=dict)
    configuration: CleanConfiguration = Field(default_factory=ConfigurationBody)


class WorkspaceUpdate(Body):
    """Changes to a workspace."""

    metadata: Metadata | None = None
    configuration: CleanConfiguration | None = None


class Filter(Body):
    """A filter for a list."""

    filters: Filters | None = None


class PeerFilter(Filter):
    """A filter for a list of peers."""

    kind: Literal["scope", "all"] | None = None


class PeerCreate(Body):
    """A peer to get or create."""

    id: Identity
    metadata: Metadata | None = None
    configuration: Metadata | None = None


class PeerUpdate(Body):
    """Changes to a peer."""

    metadata: Metadata | None = None
    configuration: Metadata | None = None


class SessionPeerConfig(Body):
    """Settings of a member: whether it is observed, and whether it observes the others."""

    observe_me: bool | None = None
    observe_others: bool | None = None


MembersBody = Annotated[dict[Name, SessionPeerConfig], BeforeValidator(check_members)]


class SessionCreate(Body):
    """A session to get or create."""

    id: Identity
    metadata: Metadata | None = None
    peers: Annotated[MembersBody | None, Field(validation_alias=AliasChoices("peers", "peer_names"))] = None
    configuration: CleanConfiguration | None = None
    scopes: Annotated[list[ScopeName], Field(max_length=limits.MAX_SCOPES)] | None = None


class SessionUpdate(Body):
    """Changes to a session."""

    metadata: Metadata | None = None
    configuration: CleanConfiguration | None = None


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


class MessageSearch(Body):
    """A search in messages."""

    query: SearchText
    filters: Filters | None = None
    limit: Limit = 10


class WorkspaceSearch(MessageSearch):
    """A search in a workspace, or in one of its scopes."""

    scope: CleanText | None = None


class EvidenceView(Body):
    """The conclusions of one peer about another."""

    observer_id: Name
    observed_id: Name


class EvidenceSearch(Body):
    """A search for evidence: the query, where to search (what a peer heard, sessions in which only certain peers are,
    or one session), and the views."""

    query: CleanText
    limit: Limit = 50
    heard_by: Name | None = None
    alone: Annotated[list[Name], Field(min_length=1, max_length=MAX_ALONE_PEERS)] | None = None
    session_id: Name | None = None
    views: Annotated[list[EvidenceView], Field(max_length=4)] | None = None


class ContextView(EvidenceView):
    """The conclusions of one peer about another, limited to sessions, optionally with the observer's card."""

    session_id: Name | None = None
    alone: Annotated[list[Name], Field(min_length=1, max_length=MAX_ALONE_PEERS)] | None = None
    searched: bool = False
    max_conclusions: Limit | None = None
    card: bool = False


class ContextRead(Body):
    """The context that a conversation reads before a turn. `tokens` limits the summary."""

    session_id: Name
    tokens: Annotated[int, Field(ge=0, le=limits.CONTEXT_TOKENS)]
    search_query: SearchText | None = None
    views: Annotated[list[ContextView], Field(max_length=8)]


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


class PeerMerge(Body):
    """The peer into which another is merged."""

    into: Name


class PeerMove(Body):
    """The peer to which messages are reassigned."""

    to: Name


class ConclusionEdit(Body):
    """The new text of a conclusion."""

    content: ConclusionText


class ConclusionQuery(Body):
    """A search in conclusions. Filters must name observer and observed."""

    query: SearchText
    top_k: Limit = 10
    distance: Distance | None = None
    filters: Filters | None = None


class PeerCardSet(Body):
    """The lines of a card."""

    peer_card: Annotated[list[CleanText], FailFast(), Field(max_length=limits.CARD_LINES)]


class RepresentationGet(Body):
    """A request for a representation; its fields choose the conclusions."""

    session_id: CleanText | None = None
    filters: Filters | None = None
    scope: ScopeName | ScopeNames | None = None
    target: CleanText | None = None
    search_query: SearchText | None = None
    search_top_k: Limit | None = None
    search_max_distance: Distance | None = None
    include_most_frequent: bool | None = None
    max_conclusions: Limit | None = 25


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


class ScheduleDream(Body):
    """A request for a dream."""

    observer: CleanText
    dream_type: Literal["omni", "card_refresh"]
    observed: CleanText | None = None
    session_id: CleanText | None = None
    rebuild: bool = False


class ScopeCreate(Body):
    """A scope to get or create."""

    id: ScopeName
    metadata: Metadata | None = None


class ScopeSessionsAdd(Body):
    """Sessions to add to a scope."""

    session_ids: Annotated[list[CleanText], Field(min_length=1, max_length=limits.MAX_SCOPES)]


class WebhookCreate(Body):
    """A URL to which events are sent."""

    url: WebhookUrl
