"""Every request that passes: what became of it, and when the server was last of use to somebody."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

UNAUTHORIZED_STATUS = 401
HEALTH = "/health"
KEY_SHOWN = "hermes.key_shown"
"""What of a request's scope says that it came with the key of this start."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that was answered. `route` is its pattern, for counting: names of people are no label."""

    method: str
    path: str
    route: str
    status: int
    seconds: float
    client: str


VisitListener = Callable[[Visit], None]
"""Told of every visit, on the loop: it must neither wait nor raise."""


class Traffic:
    """An ASGI layer that tells its listeners of every request."""

    def __init__(self, listeners: Sequence[VisitListener]) -> None:
        self._listeners = listeners
        self._under_way = 0
        self._used = time.monotonic()

    def unused_for(self) -> float:
        """Seconds since somebody got an answer, other than a 401; 0 while someone waits. Only who shows the key of this
        start is of account in asking how we are."""
        return 0.0 if self._under_way else time.monotonic() - self._used

    async def watch(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through to an application."""
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
