"""No request is larger than what the limits of the API add up to: a body is held in memory before it is parsed."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.memory_server import limits
from hermes.memory_server.api.wire import Json

TOO_LARGE = f"Request exceeds maximum of {limits.REQUEST_BYTES} bytes"


class BodyLimit:
    """An ASGI layer that answers 413 before too much was read, whether or not the length was told."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told[:20]) > limits.REQUEST_BYTES:
            await Json({"detail": TOO_LARGE}, 413, headers={"Connection": "close"})(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limits.REQUEST_BYTES:
                raise HTTPException(413, TOO_LARGE, {"Connection": "close"})
            return message

        await self._app(scope, counted, send)
