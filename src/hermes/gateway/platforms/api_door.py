"""Access to the HTTP API: clients with the key, in unambiguous requests. Limits the time that a client can hold a
connection.

Hands in a message and yields the events of its turn until the turn ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import cast

from msgspec import Struct, field
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.h11_impl import RequestResponseCycle as Cycle

from hermes.clock import Clock
from hermes.events import Failed, Replied, Stopped, TurnEvent
from hermes.gateway.gateway import Gateway
from hermes.gateway.inbox import Received, item_key_of
from hermes.gateway.inbox_record import TurnEnding
from hermes.gateway.platform import Inbound
from hermes.gateway.platforms.api_wire import ApiError
from hermes.loopback import shows_key
from hermes.slash.acts import NOT_RUNNING, STOPPED

WRONG_KEY_DELAY_SECONDS = 1.0
"""Delay of the response to a wrong key. Delays run one after another, so parallel guesses gain nothing."""
MAX_DELAYED_ANSWERS = 32
"""Requests with a wrong key that wait for their response. Further ones are refused at once."""
TWO_LENGTHS = ApiError(
    400, "the request has both a Content-Length and a Transfer-Encoding", headers={"Connection": "close"}
)


class Door(Struct):
    """Checks keys. A right key never waits for wrong ones."""

    key: str
    clock: Clock
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: int = 0

    async def check(self, authorization: str | None) -> None:
        """Raise ApiError unless the header has the key as a `Bearer` token."""
        if shows_key(authorization, self.key):
            return
        if authorization:
            await self._delay()
        raise ApiError(
            401,
            "the key is missing or wrong; send it as `Authorization: Bearer …`",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _delay(self) -> None:
        if self._waiting >= MAX_DELAYED_ANSWERS:
            headers = {"Retry-After": "60", "Connection": "close"}
            raise ApiError(429, "too many wrong keys; wait and try again", code="too_many_keys", headers=headers)
        self._waiting += 1
        try:
            async with self._turn:
                await self.clock.sleep(WRONG_KEY_DELAY_SECONDS)
        finally:
            self._waiting -= 1


def refuse_two_lengths(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that it refuses requests with two lengths: a proxy could end them elsewhere and take a part for
    the next request (request smuggling)."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            refusal = JSONResponse(TWO_LENGTHS.body, status_code=TWO_LENGTHS.status, headers=TWO_LENGTHS.headers)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


TOO_MANY_CONNECTIONS = ApiError(503, "too many connections; try again", kind="server_error", code="overloaded")


class LimitedProtocol(H11Protocol):
    """The protocol of one connection. Closes it if a request head or the reading of a response takes too long, and
    closes connections above the limit."""

    timeout_seconds: float
    """Seconds that a client has for the head of a request, and for reading a response that has piled up."""
    max_connections: int
    """Maximum number of open connections."""
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(_too_many())
            transport.close()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop(self._head_timer)
            self._head_timer = None
        elif self._head_timer is None:
            self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(self.timeout_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._head_timer)
        self._stop(self._read_timer)
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.timeout_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self._is_answering():
            self.transport.abort()

    def _is_answering(self) -> bool:
        cycle: Cycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def limited_protocol(timeout_seconds: float, max_connections: int) -> type[LimitedProtocol]:
    """Return the protocol class with these limits; the server makes an instance per connection."""
    return type(
        "LimitedProtocol", (LimitedProtocol,), {"timeout_seconds": timeout_seconds, "max_connections": max_connections}
    )


def _too_many() -> bytes:
    body = json.dumps(TOO_MANY_CONNECTIONS.body).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + body


ENDING_POLL_SECONDS = 1.0
"""Seconds without an event after which the item is looked up: another process may have deleted it."""


async def follow(gateway: Gateway, message: Inbound) -> tuple[Received, AsyncGenerator[TurnEvent, None]]:
    """Hand in a message; return its receipt, once it is committed, and the events of its turn. The caller closes them.

    A repeated message has no second turn: only the end of its first one is yielded, past or future. An author who may
    not talk gets no events.
    """
    events = _follow(gateway, message)
    received = await anext(events)
    assert isinstance(received, Received), "it comes first"
    return received, cast(AsyncGenerator[TurnEvent, None], events)


async def _follow(gateway: Gateway, message: Inbound) -> AsyncGenerator[Received | TurnEvent, None]:
    """Yield the receipt, then the events. The listener starts before the message is handed in, so no event is
    missed."""
    heard: asyncio.Queue[TurnEvent] = asyncio.Queue()
    with gateway.listen(item_key_of(message), heard.put_nowait):
        received = await gateway.receive(message)
        yield received
        if received.verdict.kind != "welcome":
            return
        if received.stopped is not None:
            yield Replied(received.session_id or "", 0, STOPPED if received.stopped else NOT_RUNNING)
            return
        while received.fresh:
            event = await _next_event(gateway, received.item_key, heard)
            yield event
            if isinstance(event, Replied | Stopped | Failed):
                return
    yield await _wait_for_end(gateway, received.item_key)


async def _wait_for_end(gateway: Gateway, item_key: str) -> TurnEnding:
    heard: asyncio.Queue[TurnEvent] = asyncio.Queue()
    with gateway.listen(item_key, heard.put_nowait):
        ending = await gateway.ending_of(item_key)
        while ending is None:
            event = await _next_event(gateway, item_key, heard)
            ending = event if isinstance(event, Replied | Stopped | Failed) else None
        return ending


async def _next_event(gateway: Gateway, item_key: str, heard: asyncio.Queue[TurnEvent]) -> TurnEvent:
    """Return the next event of an item's turn; a Failed event if the item is gone."""
    while True:
        try:
            async with asyncio.timeout(ENDING_POLL_SECONDS):
                return await heard.get()
        except TimeoutError:
            ending = await gateway.ending_of(item_key)
            if isinstance(ending, Failed) and ending.kind == "gone":
                return ending
