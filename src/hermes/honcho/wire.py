"""One Honcho server over one HTTP client: requests that end in time, and whatever goes wrong as a Failure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from hermes.clock import Clock
from hermes.honcho.credentials import Credentials
from hermes.honcho.failures import KEY_REFUSED, NoTime, Refusal, Unanswered, Unreached
from hermes.honcho.http_client import Broken, HttpClient, NotConnected
from hermes.honcho.server import BROKEN, HonchoServer
from hermes.types import Json

SHORTEST_REQUEST = 1.0
"""With less time left than these seconds no request is begun."""
LONGEST_PAUSE = 900.0
"""Seconds that a `Retry-After` of the server counts for at most, so that a new key, for example, is tried soon."""

STATES = {"full": "there is no room on its disk"}
"""What `/health` of our own server says is wrong with it, in words where its own are too few."""


class DeliveryPatience(msgspec.Struct, frozen=True):
    """How long is waited for a Honcho server, in seconds."""

    request: float = 30.0
    """For one request."""
    timeout: float | None = None
    """For every request, where the configuration says it."""
    look_after: float = 30.0
    """After a request that got no good answer, so long it may still arrive: only then can a look tell."""
    attempt: float = 45.0
    """The host's deadline for one delivery: later than this after its beginning no request is begun."""


class WireAnswer(msgspec.Struct, frozen=True):
    """A status that is a success, and what came with it."""

    status: int
    value: Json
    told_date: str | None = None

    @property
    def date(self) -> float | None:
        """The server's own time, where it tells it."""
        try:
            return None if self.told_date is None else parsedate_to_datetime(self.told_date).timestamp()
        except ValueError:
            return None


class Wire:
    """Sends requests that end before a given time. Where too little time is left it raises NoTime and sends nothing."""

    def __init__(
        self,
        server: HonchoServer,
        client: HttpClient,
        credentials: Credentials,
        clock: Clock,
        patience: DeliveryPatience,
    ) -> None:
        self.server = server
        self._client = client
        self._credentials = credentials
        self._clock = clock
        self._patience = patience
        self.is_lost = False
        """Nobody was there, the key was refused, or our own server failed: it may have moved."""
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
    ) -> WireAnswer:
        """One request, repeated only when its key was refused and there is another. It takes at most the configured
        timeout, else `longest` seconds, else the usual. Raises Failure, and msgspec.ValidationError for an answer
        without the `shape`."""
        seconds = min(self._patience.timeout or longest or self._patience.request, until - self._clock.now())
        if seconds < SHORTEST_REQUEST:
            raise NoTime("there was no time left for it")
        if self._retired:
            raise Unreached("the server was lost meanwhile")
        content = None if body is None else msgspec.json.encode(body)
        self._running += 1
        try:
            end = self._clock.now() + seconds
            key = await self._credentials.key(end)
            if (left := end - self._clock.now()) <= 0:  # renewing a token took all of it
                raise NoTime("there was no time left for it")
            async with asyncio.timeout(left):
                reply = await self._client.send(method, path, content, key)
                while reply.status == KEY_REFUSED:
                    if (other := await self._credentials.after_refusal(key, end)) is None:
                        break
                    key = other
                    reply = await self._client.send(method, path, content, key)
            return understand(reply.status, reply.body, reply.headers, shape)
        except TimeoutError:
            raise Unanswered(f"the server did not answer within {seconds:.0f} s") from None
        except NotConnected as error:
            self.is_lost = True
            raise Unreached(f"the server cannot be reached: {error}") from error
        except Refusal as refusal:
            failed = refusal.status >= BROKEN and self.server.kind == "embedded"
            self.is_lost = self.is_lost or failed or refusal.status == KEY_REFUSED
            raise
        except Broken as error:
            self.is_lost = self.is_lost or self.server.kind == "embedded"
            raise Unanswered(f"the connection to the server broke: {error}") from error
        finally:
            self._running -= 1
            await self._close_retired()

    async def retire(self) -> None:
        """It is not used again: close it when the last request has ended."""
        self._retired = True
        await self._close_retired()

    async def _close_retired(self) -> None:
        if self._retired and not self._running:
            await self._client.close()


def understand(status: int, read: bytes, headers: Mapping[str, str], shape: Any = Any) -> WireAnswer:
    """What a server answered. Raises Refusal, and Unanswered for a success that no Honcho server gives."""
    is_success = 200 <= status < 300
    try:
        value = msgspec.json.decode(read, type=shape if is_success else Any) if read else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        if is_success:
            raise Unanswered("the server's answer is not JSON") from None
        value = None
    if not is_success:
        raise Refusal(status, _detail(value) or "no reason given", _pause(headers.get("retry-after")))
    return WireAnswer(status, value, headers.get("date"))


def items_of(told: WireAnswer, what: str) -> list[dict[str, Json]]:
    """The items of a list, each with an id. Raises Unanswered for what is none."""
    items = told.value.get("items") if isinstance(told.value, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) and "id" in one for one in items):
        raise Unanswered(f"the server's list of {what} is none")
    return items


def read_time(given: Json, what: str) -> datetime:
    """A time as a server tells it; without a zone it is UTC. Raises Unanswered for what is none."""
    try:
        found = datetime.fromisoformat(str(given))
    except ValueError:
        raise Unanswered(f"the server tells no time of a {what}: {str(given)[:100]}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _detail(value: Json) -> str:
    """Why a server refused, as far as it says. `/health` of ours says in a word what is wrong with it."""
    told = value if isinstance(value, dict) else {}
    detail, state = told.get("detail"), told.get("status")
    if isinstance(detail, list):
        return "; ".join(str(one.get("msg", one)) if isinstance(one, dict) else str(one) for one in detail[:3])
    if detail is None and isinstance(state, str):
        return STATES.get(state, f"its state is {state}")
    return "" if detail is None else str(detail)


def _pause(given: str | None) -> float | None:
    """`Retry-After` in seconds; None where it is missing or a date."""
    return min(float(given), LONGEST_PAUSE) if given is not None and given.isdecimal() else None
