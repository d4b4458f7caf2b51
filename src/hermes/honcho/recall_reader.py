"""Reads of a Honcho server. Responses are validated; a 404 becomes None, any other failure a ProviderError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from hermes.errors import ProviderError
from hermes.honcho.failures import NOT_FOUND_STATUS, Failure, Refusal, Unreached
from hermes.honcho.links import Link, Links
from hermes.honcho.names import workspace_path
from hermes.honcho.wire import WireResponse
from hermes.types import Json

T = TypeVar("T")
READ_TIMEOUT_SECONDS = 60.0
"""For connecting to the server and for one request. A turn with less time continues without the response."""
HEALTH_SECONDS = 15.0
"""How long a health check of our server stays valid."""
DIALECTIC_TIMEOUT_SECONDS = 110.0
"""For an answer that a model thinks about. Nobody waits for it, but the host stops preparing after 120 seconds."""


class ListPage(Struct, Generic[T], frozen=True):
    items: list[T]
    total: int | None = None


class SummaryPart(Struct, frozen=True):
    content: str


class Context(Struct, frozen=True):
    """The parts of a session's context that concern a person."""

    summary: SummaryPart | None = None
    peer_representation: str | None = None
    peer_card: list[str] | None = None


class RecalledRepresentation(Struct, frozen=True):
    representation: str


class Card(Struct, frozen=True):
    peer_card: list[str] | None = None


class RecalledView(Struct, frozen=True):
    representation: str
    card: list[str] | None = None


class RecalledContext(Struct, frozen=True):
    """The summary of a session, and the contents of the requested views, in their order."""

    summary: str | None
    views: list[RecalledView]


class ChatAnswer(Struct, frozen=True):
    content: str | None = None


class Named(Struct, frozen=True):
    """A session or a peer."""

    id: str


class RecalledMessage(Struct, frozen=True):
    content: str
    peer_id: str
    created_at: str
    id: str = ""
    session_id: str = ""


class RecalledChange(Struct, frozen=True):
    """A statement of a message that no longer holds, with the newer statement and its time."""

    content: str
    newer: str
    newer_said_at: str


class RecalledConclusion(Struct, frozen=True):
    id: str
    content: str


class RecalledStanding(RecalledConclusion, frozen=True):
    """A standing fact about a person, and its kind."""

    kind: str
    created_at: str
    session_id: str | None = None
    observed_id: str = ""


class RecallReader:
    """Reads one workspace of the server in force."""

    def __init__(self, links: Links, now: Callable[[], float], workspace: str) -> None:
        self._links = links
        self.now = now
        self._root = workspace_path(workspace)
        self._asked: Link | None = None
        self._asked_at = 0.0
        self._is_floor = False
        self.is_ours = False
        """Whether the last queried server is our own kind."""

    async def get(self, shape: type[T], path: str, **query: str | int | None) -> T | None:
        """Read a value; None if the server does not know it. Raises ProviderError."""
        given = {name: value for name, value in query.items() if value is not None}
        return await self._ask(shape, "GET", f"{path}?{urlencode(given)}" if given else path, None)

    async def post(
        self, shape: type[T], path: str, body: Json, longest: float | None = None, **query: str | int
    ) -> T | None:
        """Post a body and read the response; `longest` overrides the usual timeout. Raises ProviderError."""
        return await self._ask(shape, "POST", f"{path}?{urlencode(query)}" if query else path, body, longest)

    async def delete(self, shape: type[T], path: str) -> T | None:
        """Delete an object and read the response; None if the server does not know it. Raises ProviderError."""
        return await self._ask(shape, "DELETE", path, None)

    async def link(self) -> Link:
        """Return the link to the server in force, which lists the server's extensions. Raises ProviderError."""
        try:
            found = await self._links.link(self.now() + READ_TIMEOUT_SECONDS)
        except Failure as failure:
            raise ProviderError(str(failure), hint="") from failure
        self.is_ours = found.finds_evidence
        return found

    async def is_floor(self) -> bool:
        """Return True if our own server answers without a model. Our server is checked again from time to time,
        since a model can come and go; another server once."""
        try:
            until = self.now() + READ_TIMEOUT_SECONDS
            link = await self._links.link(until)
            if link is not self._asked or (self.is_ours and self.now() >= self._asked_at + HEALTH_SECONDS):
                told = await self._read("GET", "/health", None, until)
                health = told.value if isinstance(told.value, dict) else {}
                self.is_ours = "extensions" in health
                self._is_floor = self.is_ours and health.get("model", "") is None
                self._asked, self._asked_at = await self._links.link(until), self.now()
        except Refusal as refusal:
            if refusal.status >= 500:
                return self._is_floor  # it is in trouble, and says nothing of what it is
            self.is_ours = self._is_floor = False  # a server without such a page is not ours
        except Failure as failure:
            raise ProviderError(str(failure), hint="") from failure
        return self._is_floor

    async def _ask(self, shape: type[T], method: str, path: str, body: Json, longest: float | None = None) -> T | None:
        until = self.now() + max(READ_TIMEOUT_SECONDS, longest or 0.0)
        try:
            told = await self._read(method, f"{self._root}/{path}", body, until, longest, shape)
            return msgspec.convert(told.value, shape) if told.value is None else cast(T, told.value)
        except Failure as failure:
            if isinstance(failure, Refusal) and failure.status == NOT_FOUND_STATUS:
                return None
            raise ProviderError(str(failure), hint="") from failure
        except msgspec.ValidationError as error:
            raise ProviderError("the server's response is not one of Honcho", hint="") from error

    async def _read(
        self, method: str, path: str, body: Json, until: float, longest: float | None = None, shape: Any = Any
    ) -> WireResponse:
        """Send one request. Our own server stops when idle: if it is gone, its successor gets the request once.
        Raises Failure."""
        link = await self._links.link(until)
        try:
            return await link.wire.ask(method, path, body, until=until, longest=longest, shape=shape)
        except Unreached:
            if link.wire.server.kind != "embedded":
                raise
        link = await self._links.link(until)
        return await link.wire.ask(method, path, body, until=until, longest=longest, shape=shape)


NOTICE = "No model is configured"
NOTICES = (NOTICE, "The model did not answer", "Memory was not told the answer")
"""Beginnings of answers that no model wrote: without a model, after its failure, and without a known answer."""


def is_floor_answer(answer: str) -> bool:
    """Return True if no model wrote this answer."""
    return answer.startswith(NOTICES)
