"""Limits on the memory that requests and responses occupy, and for how long."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.memory_server import limits
from hermes.memory_server.api.bodies import JsonResponse
from hermes.memory_server.api.metrics import HEALTH
from hermes.memory_server.db.scheduling import scheduled_client

MEMBER_PATHS = ("/sessions", "/peers")
UPLOAD_PATH = "/messages/upload"
LARGE_BODY_PATHS = ("/messages", "/messages/", UPLOAD_PATH, "/conclusions")
"""Path suffixes of routes whose bodies may be large."""
IMPORT_PATH = "/ext/import/"
"""Part of the path of an import, whose body may be large."""
TOO_MUCH = "The server is processing too many large requests; try again"
TOO_SLOW = f"The request was not received within {limits.REQUEST_SECONDS:g} seconds"
TOO_MANY_MEMBERS = f"The request names more than {limits.MAX_MEMBERS} members"
NOT_TAKEN = "Too many large responses are waiting for slow clients; try again"
CLOSE, RETRY = {"Connection": "close"}, {"Retry-After": "1"}
WATCH_DELAY_SECONDS = 0.25
"""Delay before the server checks whether the client is still connected: most requests are finished by then."""
ASKER = "hermes.asker"
"""Key in the ASGI scope for the client's scheduling state, one per connection."""
CROWDED = "hermes.crowded"
"""Key in the ASGI scope for a flag: there are more connections than the maximum."""
TOO_MANY_CONNECTIONS = "The server has too many connections; try again"
OK, REFUSED = 200, 400
REFUSAL_DELAY_SECONDS = 0.5
"""Delay before a large request is refused, after its body was released: a client that retries immediately would occupy
a processor."""


class BodyIntake:
    """An ASGI layer. It counts bodies as they arrive, with or without a declared length, cancels requests whose client
    has left, and counts large responses until the client has taken them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held = 0
        self.untaken = 0
        """Bytes of large responses that clients have not taken yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope.get(CROWDED) and scope["path"] != HEALTH:
            refusal = JsonResponse({"detail": TOO_MANY_CONNECTIONS}, 503, headers={**CLOSE, **RETRY})
            await refusal(scope, receive, send)
            return
        most = _most(scope["path"])
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told[:20]) > most:
            await sleep(REFUSAL_DELAY_SECONDS)
            await JsonResponse({"detail": _too_large(most)}, 413, headers=CLOSE)(scope, receive, send)
            return
        scheduled_client.set(scope.get(ASKER))
        coming = _IncomingRequest(self, receive, most, _most_values(scope["path"]))
        going = _OutgoingResponse(self, coming, scope, send)
        try:
            await self._app(scope, coming.receive, going.send)
        except asyncio.CancelledError:
            if not coming.left:
                raise
        finally:
            coming.end()
        await going.end()

    def hold(self, size: int) -> None:
        """Add `size` bytes to the count; a negative size releases them."""
        self._held += size
        if size > 0 and self._held > limits.REQUESTS_BYTES:
            raise HTTPException(429, TOO_MUCH, {**CLOSE, **RETRY})


class _IncomingRequest:
    """One incoming request."""

    def __init__(self, intake: BodyIntake, receive: Receive, most: int, most_values: int | None) -> None:
        self._intake = intake
        self._receive = receive
        self._most = most
        self._came = self._read = 0
        self._most_values = most_values
        self._count = _JsonCount()
        self._complete = False
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + limits.REQUEST_SECONDS
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(WATCH_DELAY_SECONDS, self._start_watching)
        self._watching: asyncio.Task[None] | None = None
        self.left = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, TOO_SLOW, CLOSE) from None
        body = message.get("body", b"")
        size = len(body)
        self._complete = not message.get("more_body", False)
        self._came += size
        self._read += size
        if self._read > self._most:
            self._read -= size
            raise HTTPException(413, _too_large(self._most), CLOSE)
        if self._most_values is not None and (self.is_large or not self._complete):
            self._count.add(body)
            if self.is_large and self._count.values > self._most_values:
                self._read -= size
                raise HTTPException(413, _too_many(self._most_values), CLOSE)
        self._intake.hold(size)
        return message

    @property
    def is_large(self) -> bool:
        return self._came > limits.LARGE_BODY_BYTES

    def end(self) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        self._intake.hold(-self._read)

    def _start_watching(self) -> None:
        """Start to watch for a disconnect as soon as the request is completely read."""
        if self._complete:
            self._watching = self._loop.create_task(self._watch())
        else:
            self._timer = self._loop.call_later(WATCH_DELAY_SECONDS, self._start_watching)

    async def _watch(self) -> None:
        message: dict[str, Any] = dict(await self._receive())
        if message["type"] == "http.disconnect" and self._task is not None:
            self.left = True
            self._task.cancel()


class _JsonCount:
    """Counts the values of JSON that arrives in pieces, by commas and opening brackets outside of strings."""

    def __init__(self) -> None:
        self.values = 0
        self._in_text = 0
        self._left = b""

    def add(self, piece: bytes) -> None:
        piece = (self._left + piece).replace(b"\\\\", b"").replace(b'\\"', b"")
        self._left = b"\\" if piece.endswith(b"\\") else b""  # the escaped character is in the next piece
        parts = piece.split(b'"')
        outside = b"".join(parts[self._in_text :: 2])
        self._in_text = (self._in_text + len(parts) - 1) % 2
        self.values += sum(map(outside.count, (b",", b"[", b"{")))


class _OutgoingResponse:
    """One outgoing response."""

    def __init__(self, intake: BodyIntake, request: _IncomingRequest, scope: Scope, send: Send) -> None:
        self._intake = intake
        self._request = request
        self._scope = scope
        self._send = send
        self._late: list[Message] = []
        self._is_replaced = False

    async def send(self, message: Message) -> None:
        if self._is_replaced:
            return
        if self._late or (message.get("status", 0) >= REFUSED and self._request.is_large):
            self._late.append(message)
        elif message.get("status") == OK and self._finds_no_room(message):
            # No creation is lost: routes that create an object for each request respond with 201.
            self._is_replaced = True
            refusal = JsonResponse({"detail": NOT_TAKEN}, 429, headers=RETRY)
            await refusal(self._scope, self._request.receive, self._send)
        elif len(message.get("body", b"")) > limits.LARGE_BODY_BYTES:
            await self._send_in_pieces(message)
        else:
            await self._send(message)

    async def end(self) -> None:
        """Send the refusal of a large request, whose body has been released."""
        if self._late:
            await sleep(REFUSAL_DELAY_SECONDS)
            for message in self._late:
                await self._send(message)

    def _finds_no_room(self, message: Message) -> bool:
        size = int(dict(message["headers"]).get(b"content-length", b"0"))
        return size > limits.LARGE_BODY_BYTES and self._intake.untaken + size > limits.RESPONSES_BYTES

    async def _send_in_pieces(self, message: Message) -> None:
        """Send a body in pieces; each waits until the client has taken most of the earlier ones."""
        body = message["body"]
        self._intake.untaken += len(body)
        try:
            for start in range(0, len(body), limits.LARGE_BODY_BYTES):
                piece = body[start : start + limits.LARGE_BODY_BYTES]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._send({"type": "http.response.body", "more_body": message.get("more_body", False)})
        finally:
            self._intake.untaken -= len(body)


def _most(path: str) -> int:
    if path.endswith(LARGE_BODY_PATHS) or IMPORT_PATH in path:
        return limits.REQUEST_BYTES
    return limits.MEMBERS_REQUEST_BYTES if _names_members(path) else limits.SMALL_REQUEST_BYTES


def _most_values(path: str) -> int | None:
    if IMPORT_PATH in path:
        return limits.MAX_IMPORT_BODY_VALUES
    if path.endswith(UPLOAD_PATH):
        return None
    return limits.MAX_MEMBERS_BODY_VALUES if _names_members(path) else limits.MAX_BODY_VALUES


def _names_members(path: str) -> bool:
    return path.endswith(MEMBER_PATHS) and IMPORT_PATH not in path


def _too_large(most: int) -> str:
    return f"Request exceeds maximum of {most} bytes"


def _too_many(values: int) -> str:
    if values == limits.MAX_MEMBERS_BODY_VALUES:
        return TOO_MANY_MEMBERS
    return f"Request holds more than {values} JSON values"
