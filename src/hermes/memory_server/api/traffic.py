"""Observation of all requests: their outcome, and when the server was last used."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

UNAUTHORIZED_STATUS = 401
HEALTH = "/health"
KEY_SHOWN = "hermes.key_shown"
"""Key in the ASGI scope for a flag: the request has the start key."""


@dataclass(frozen=True, slots=True)
class Visit:
    """An answered request. `route` is the pattern of its path: metrics must not use people's names as labels."""

    method: str
    path: str
    route: str
    status: int
    seconds: float
    client: str


VisitListener = Callable[[Visit], None]
"""Called on the event loop after every request; it must neither block nor raise."""


class Traffic:
    """An ASGI layer that calls listeners after every request."""

    def __init__(self, listeners: Sequence[VisitListener]) -> None:
        self._listeners = listeners
        self._under_way = 0
        self._used = time.monotonic()

    def unused_for(self) -> float:
        """Return the seconds since the last use; 0 while a request is running. Responses with status 401 do not count
        as use, nor does `/health` without the start key."""
        return 0.0 if self._under_way else time.monotonic() - self._used

    async def watch(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to an application and record its outcome."""
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status = 500
        start = time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._under_way += 1
        try:
            await app(scope, receive, note)
        finally:
            self._under_way -= 1
            self._end(scope, status, time.perf_counter() - start)

    def _end(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        client = (scope.get("client") or ("-",))[0]
        visit = Visit(scope["method"], scope["path"], route, status, seconds, client)
        if status != UNAUTHORIZED_STATUS and (visit.path != HEALTH or scope.get(KEY_SHOWN)):
            self._used = time.monotonic()
        for listener in self._listeners:
            listener(visit)
