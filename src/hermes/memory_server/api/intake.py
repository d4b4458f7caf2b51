"""Requests on their way in: how much of them is held in memory, how long they may take to come, and who left."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.memory_server import limits
from hermes.memory_server.api.wire import JsonResponse
from hermes.memory_server.db.patience import asker

MEMBERS = ("/sessions", "/peers")
LARGE = ("/messages", "/messages/", "/messages/upload", "/conclusions")
"""What the paths end with where a body names members, or may be large."""
IMPORT = "/ext/import/"
"""What the path of an import holds, whatever it ends with: its body may be large."""
TOO_MUCH = "The server holds as many large requests as it can; try again"
TOO_SLOW = f"The request did not come within {limits.REQUEST_SECONDS:g} seconds"
TOO_LONG = f"The request names more than {limits.MEMBERS} members"
CLOSE = {"Connection": "close"}
ATTENTION = 0.25
"""Seconds after which one looks whether the client is still there: most requests are answered by then."""
ASKER = "hermes.asker"
"""What of a request's scope says whose connection it came on."""
REFUSED = 400
LARGE_BODY_BYTES = 65_536
PAUSE = 0.5
"""Seconds after which a large body is refused, when it is let go already: who sends one after another would take a
processor from everybody."""


class BodyIntake:
    """An ASGI layer. A body is counted as it comes, whether or not its length was told; what nobody waits for any more
    is cancelled."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = _most(scope["path"])
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told[:20]) > most:
            await sleep(PAUSE)
            await JsonResponse({"detail": _too_large(most)}, 413, headers=CLOSE)(scope, receive, send)
            return
        asker.set(scope.get(ASKER))
        coming = _Coming(self, receive, most, counts_commas=_names_members(scope["path"]))
        refusal: list[Message] = []

        async def keep_refusal(message: Message) -> None:
            if refusal or (message.get("status", 0) >= REFUSED and coming.is_large):
                refusal.append(message)
            else:
                await send(message)

        try:
            await self._app(scope, coming.receive, keep_refusal)
        except asyncio.CancelledError:
            if not coming.left:
                raise
        finally:
            coming.end()
        if refusal:
            await sleep(PAUSE)
            for message in refusal:
                await send(message)

    def hold(self, size: int) -> None:
        """Count so many bytes more (or less, when they are let go)."""
        self._held += size
        if size > 0 and self._held > limits.REQUESTS_BYTES:
            raise HTTPException(429, TOO_MUCH, {**CLOSE, "Retry-After": "1"})


class _Coming:
    """One request while it lasts."""

    def __init__(self, intake: BodyIntake, receive: Receive, most: int, *, counts_commas: bool) -> None:
        self._intake = intake
        self._receive = receive
        self._most = most
        self._came = self._read = 0
        self._commas: int | None = 0 if counts_commas else None
        self._complete = False
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + limits.REQUEST_SECONDS
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(ATTENTION, self._attend)
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
        size = len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self._came += size
        self._read += size
        if self._read > self._most:
            self._read -= size
            raise HTTPException(413, _too_large(self._most), CLOSE)
        if self._commas is not None:
            self._commas += message.get("body", b"").count(b",")
            if self._commas > limits.MEMBERS_REQUEST_COMMAS:
                self._read -= size
                raise HTTPException(413, TOO_LONG, CLOSE)
        self._intake.hold(size)
        return message

    @property
    def is_large(self) -> bool:
        return self._came > LARGE_BODY_BYTES

    def end(self) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        self._intake.hold(-self._read)

    def _attend(self) -> None:
        """Wait for the client to leave; not before all of its request is read."""
        if self._complete:
            self._watching = self._loop.create_task(self._watch())
        else:
            self._timer = self._loop.call_later(ATTENTION, self._attend)

    async def _watch(self) -> None:
        message: dict[str, Any] = dict(await self._receive())
        if message["type"] == "http.disconnect" and self._task is not None:
            self.left = True
            self._task.cancel()


def _most(path: str) -> int:
    if path.endswith(LARGE) or IMPORT in path:
        return limits.REQUEST_BYTES
    return limits.MEMBERS_REQUEST_BYTES if _names_members(path) else limits.SMALL_REQUEST_BYTES


def _names_members(path: str) -> bool:
    return path.endswith(MEMBERS) and IMPORT not in path


def _too_large(most: int) -> str:
    return f"Request exceeds maximum of {most} bytes"
