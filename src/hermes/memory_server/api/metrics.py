"""How many requests, with which outcome and how long: as Prometheus reads it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Metrics:
    """Counts of one process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """One more request to a route."""
        with self._guard:
            self._requests[method, path, status] += 1
            self._seconds[method, path] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        """All counts in the text format."""
        with self._guard:
            requests, seconds = dict(self._requests), dict(self._seconds)
        lines = ["# TYPE hermes_memory_requests_total counter"]
        lines += [
            f'hermes_memory_requests_total{{method="{method}",path="{path}",status="{status}"}} {number}'
            for (method, path, status), number in sorted(requests.items())
        ]
        lines.append("# TYPE hermes_memory_request_seconds_total counter")
        lines += [
            f'hermes_memory_request_seconds_total{{method="{method}",path="{path}"}} {spent:.6f}'
            for (method, path), spent in sorted(seconds.items())
        ]
        return "\n".join(lines) + "\n"

    def middleware(self) -> Callable[[ASGIApp], Any]:
        """An ASGI layer that counts what passes through."""

        def wrap(app: ASGIApp) -> ASGIApp:
            async def counted(scope: Scope, receive: Receive, send: Send) -> None:
                await self._pass(app, scope, receive, send)

            return counted

        return wrap

    async def _pass(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        status = 500
        start = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, watch)
        finally:
            # The route's pattern, not the path: names of people are no label.
            route = scope.get("route")
            self.count(scope["method"], getattr(route, "path", "other"), status, time.perf_counter() - start)
