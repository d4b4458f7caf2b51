"""Requests to one Honcho server over one HTTP client, each with a time limit; every error becomes a Failure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from hermes.clock import Clock
from hermes.honcho.failures import UNAUTHORIZED_STATUS, NoTime, Refusal, Unanswered, Unreached
from hermes.honcho.http_client import Broken, HttpClient, NotConnected
from hermes.honcho.renewal import Credentials
from hermes.honcho.server import MIN_FAILURE_STATUS, HonchoServer
from hermes.types import Json

MIN_REQUEST_SECONDS = 1.0
"""The least time left with which a request is still sent."""
MAX_RETRY_AFTER_SECONDS = 900.0
"""The upper limit for a server's `Retry-After`, so that a corrected key, for example, is tried soon."""

STATES = {"full": "there is no room on its disk"}
"""Explanations of our server's `/health` states."""


class DeliveryTimeouts(msgspec.Struct, frozen=True):
    """Timeouts of requests and deliveries to a Honcho server, in seconds."""

    request: float = 30.0
    """For one request."""
    timeout: float | None = None
    """For every request, if configured."""
    look_after: float = 30.0
    """How long a request without a valid response may still arrive; a search can tell only after that."""
    attempt: float = 45.0
    """The host's deadline for one delivery; no request starts later."""


class WireResponse(msgspec.Struct, frozen=True):
    """A successful response."""

    status: int
    value: Json
    date_header: str | None = None

    @property
    def date(self) -> float | None:
        """The server's clock, if the response has a date."""
        try:
            return None if self.date_header is None else parsedate_to_datetime(self.date_header).timestamp()
        except ValueError:
            return None


class Wire:
    """Sends requests with time limits. If too little time is left, raises NoTime and sends nothing."""

    def __init__(
        self,
        server: HonchoServer,
        client: HttpClient,
        credentials: Credentials,
        clock: Clock,
        timeouts: DeliveryTimeouts,
    ) -> None:
        self.server = server
        self._client = client
        self._credentials = credentials
        self._clock = clock
        self._timeouts = timeouts
        self.is_lost = False
        """Set if the server was unreachable, refused the key, or (our own) failed: it may have moved."""
        self._running = 0
        self._retired = False

    async def ask(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        until: float,
        longest: float | None = None,
        shape: Any = Any,
    ) -> WireResponse:
        """Send one request; repeat it only after a refused key, with another one. Its timeout is the configured one,
        else `longest`, else the default. Raises Failure, and msgspec.ValidationError for a response of another
        `shape`."""
        seconds = min(self._timeouts.timeout or longest or self._timeouts.request, until - self._clock.now())
        if seconds < MIN_REQUEST_SECONDS:
            raise NoTime("too little time was left to send it")
        if self._retired:
            raise Unreached("the connection was closed meanwhile")
        content = None if body is None else msgspec.json.encode(body)
        self._running += 1
        try:
            end = self._clock.now() + seconds
            key = await self._credentials.key(end)
            if (left := end - self._clock.now()) <= 0:  # renewing a token took all of it
                raise NoTime("too little time was left to send it")
            async with asyncio.timeout(left):
                reply = await self._client.send(method, path, content, key)
                while reply.status == UNAUTHORIZED_STATUS:
                    if (other := await self._credentials.after_refusal(key, end)) is None:
                        break
                    key = other
                    reply = await self._client.send(method, path, content, key)
            return parse_response(reply.status, reply.body, reply.headers, shape)
        except TimeoutError:
            raise Unanswered(f"the server did not answer within {seconds:.0f} s") from None
        except NotConnected as error:
            self.is_lost = True
            raise Unreached(f"the server cannot be reached: {error}") from error
        except Refusal as refusal:
            failed = refusal.status >= MIN_FAILURE_STATUS and self.server.kind == "embedded"
            self.is_lost = self.is_lost or failed or refusal.status == UNAUTHORIZED_STATUS
            raise
        except Broken as error:
            self.is_lost = self.is_lost or self.server.kind == "embedded"
            raise Unanswered(f"the connection to the server broke: {error}") from error
        finally:
            self._running -= 1
            await self._close_retired()

    async def retire(self) -> None:
        """Accept no further requests, and close the client after the last running one."""
        self._retired = True
        await self._close_retired()

    async def _close_retired(self) -> None:
        if self._retired and not self._running:
            await self._client.close()


def parse_response(status: int, read: bytes, headers: Mapping[str, str], shape: Any = Any) -> WireResponse:
    """Parse a response. Raises Refusal, or Unanswered for a success that is not JSON."""
    is_success = 200 <= status < 300
    try:
        value = msgspec.json.decode(read, type=shape if is_success else Any) if read else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        if is_success:
            raise Unanswered("the server's response is not JSON") from None
        value = None
    if not is_success:
        raise Refusal(status, _detail(value) or "no reason given", _pause(headers.get("retry-after")))
    return WireResponse(status, value, headers.get("date"))


def items_of(response: WireResponse, what: str) -> list[dict[str, Json]]:
    """Return the items of a list response, each with an id. Raises Unanswered for any other response."""
    items = response.value.get("items") if isinstance(response.value, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) and "id" in one for one in items):
        raise Unanswered(f"the server's list of {what} is invalid")
    return items


def read_time(given: Json, what: str) -> datetime:
    """Return a server's timestamp; without a zone it is UTC. Raises Unanswered if it is invalid."""
    try:
        found = datetime.fromisoformat(str(given))
    except ValueError:
        raise Unanswered(f"the server sent an invalid time of a {what}: {str(given)[:100]}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _detail(value: Json) -> str:
    """Return the server's reason for a refusal; "" if it gave none."""
    body = value if isinstance(value, dict) else {}
    detail, state = body.get("detail"), body.get("status")
    if isinstance(detail, list):
        return "; ".join(str(one.get("msg", one)) if isinstance(one, dict) else str(one) for one in detail[:3])
    if detail is None and isinstance(state, str):
        return STATES.get(state, f"its state is {state}")
    return "" if detail is None else str(detail)


def _pause(given: str | None) -> float | None:
    """Return `Retry-After` in seconds; None if it is missing or a date."""
    return min(float(given), MAX_RETRY_AFTER_SECONDS) if given is not None and given.isdecimal() else None
