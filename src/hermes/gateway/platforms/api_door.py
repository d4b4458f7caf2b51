"""Who comes in over HTTP: whoever shows the key, in a request that means one thing only."""

from __future__ import annotations

import asyncio

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hermes.clock import Clock
from hermes.gateway.platforms.api_wire import ApiError
from hermes.loopback import shows_key

PAUSE = 1.0
"""Seconds until a wrong key is answered, one after another: guesses at the same time take as long as in a row."""
MOST_WAITING = 32
"""Wrong keys that wait for their answer; one more is turned away at once, unread."""
TWO_LENGTHS = ApiError(
    400, "the request has both a Content-Length and a Transfer-Encoding", headers={"Connection": "close"}
)


class Door:
    """Checks keys. A right one is never kept waiting by wrong ones."""

    def __init__(self, key: str, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def check(self, authorization: str | None) -> None:
        """Raise ApiError unless the header shows the key, as `Bearer` and in no other way."""
        if shows_key(authorization, self._key):
            return
        if authorization:
            await self._be_slow()
        raise ApiError(
            401,
            "the key is missing or wrong; send it as `Authorization: Bearer …`",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _be_slow(self) -> None:
        if self._waiting >= MOST_WAITING:
            headers = {"Retry-After": "60", "Connection": "close"}
            raise ApiError(429, "too many wrong keys; wait and try again", code="too_many_keys", headers=headers)
        self._waiting += 1
        try:
            async with self._turn:
                await self._clock.sleep(PAUSE)
        finally:
            self._waiting -= 1


def refuse_two_lengths(app: ASGIApp) -> ASGIApp:
    """`app`, but for requests whose end others may see elsewhere: something between would take a part for the next."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            refusal = JSONResponse(TWO_LENGTHS.body, status_code=TWO_LENGTHS.status, headers=TWO_LENGTHS.headers)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve
