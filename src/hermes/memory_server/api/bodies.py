"""Bodies of requests and responses that several groups of routes use. Other bodies stand beside their routes.

A request body is a pydantic model (`Body`), which parses it. A response body is a typed dictionary, which its function
fills from a row: the type checker compares both, and /openapi.json is made from the same type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar

import orjson
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from starlette.responses import Response
from typing_extensions import TypedDict

from hermes.memory_server import limits, times
from hermes.memory_server.api.clean import Body, Filters, Instructions, Name, ScopeName, check_size, clean_json
from hermes.memory_server.db.database import Record
from hermes.memory_server.engine.paging import Paged

T = TypeVar("T")
JsonText = orjson.Fragment
"""JSON text of a column, passed through without parsing."""
JsonObject = Annotated[Any, WithJsonSchema({"additionalProperties": True, "type": "object"})]
"""A JSON object, or its text."""
JsonTexts = Annotated[Any, WithJsonSchema({"items": {"type": "string"}, "type": "array"})]
"""A list of texts, or its JSON."""
Moment = Annotated[str, WithJsonSchema({"format": "date-time", "type": "string"})]
Count = Annotated[int, Field(ge=0)]
Limit = Annotated[int, Field(ge=1, le=limits.MAX_RESULTS)]
Distance = Annotated[float, Field(ge=0.0, le=1.0)]
Identity = Annotated[Name, Field(validation_alias=AliasChoices("id", "name"))]
"""The field's older name is also accepted."""
ScopeNames = Annotated[list[ScopeName], Field(min_length=1, max_length=limits.MAX_SCOPES)]


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class Detail(TypedDict):
    """The reason of a refusal: a sentence, or a list of problems with their locations."""

    detail: str | list[JsonObject]


class AcceptedResponse(TypedDict):
    message: str


class Page(TypedDict, Generic[T]):
    items: list[T]
    total: Count
    page: Annotated[int, Field(ge=1)]
    size: Annotated[int, Field(ge=1)]
    pages: Count


def show_page(paged: Paged, show: Callable[[Record], T]) -> JsonResponse:
    asked = paged.page
    page: Page[T] = {
        "items": [show(row) for row in paged.rows],
        "total": paged.total,
        "page": asked.number,
        "size": asked.size,
        "pages": paged.pages,
    }
    return JsonResponse(page)


def show_moment(micros: int | None) -> str | None:
    return None if micros is None else times.to_wire(micros)


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


class Filter(Body):
    """A filter for a list."""

    filters: Filters | None = None


class Session(TypedDict):
    id: str
    uid: str
    is_active: bool
    workspace_id: str
    metadata: JsonObject
    configuration: JsonObject
    created_at: Moment


def show_session(row: Record) -> Session:
    return {
        "id": row.name,
        "uid": row.uid,
        "is_active": bool(row.is_active),
        "workspace_id": row.workspace,
        "metadata": JsonText(row.metadata),
        "configuration": JsonText(row.configuration),
        "created_at": times.to_wire(row.created_at),
    }


class Peer(TypedDict):
    id: str
    uid: str
    workspace_id: str
    created_at: Moment
    metadata: JsonObject
    configuration: JsonObject


def show_peer(row: Record) -> Peer:
    return {
        "id": row.name,
        "uid": row.uid,
        "workspace_id": row.workspace,
        "created_at": times.to_wire(row.created_at),
        "metadata": JsonText(row.metadata),
        "configuration": JsonText(row.configuration),
    }


class Message(TypedDict):
    id: str
    content: str
    peer_id: str
    session_id: str
    metadata: JsonObject
    created_at: Moment
    workspace_id: str
    token_count: int


def show_message(row: Record) -> Message:
    return {
        "id": row.public_id,
        "content": row.content,
        "peer_id": row.peer,
        "session_id": row.session,
        "metadata": JsonText(row.metadata),
        "created_at": times.to_wire(row.created_at),
        "workspace_id": row.workspace,
        "token_count": row.token_count,
    }


class Conclusion(TypedDict):
    id: str
    content: str
    observer_id: str
    observed_id: str
    session_id: str | None
    level: Literal["explicit", "deductive", "inductive", "contradiction"]
    created_at: Moment
    source_ids: JsonTexts | None
    times_derived: int
    valid_until: Moment | None
    superseded_by: str | None


def show_conclusion(row: Record) -> Conclusion:
    return {
        "id": row.public_id,
        "content": row.content,
        "observer_id": row.observer,
        "observed_id": row.observed,
        "session_id": row.session,
        "level": row.level,
        "created_at": times.to_wire(row.created_at),
        "source_ids": None if row.source_ids is None else JsonText(row.source_ids),
        "times_derived": row.mentions,
        "valid_until": show_moment(row.valid_until),
        "superseded_by": row.newer,
    }
