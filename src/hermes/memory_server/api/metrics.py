"""Observation of all requests (their outcome, and when the server was last used), and `/metrics` for Prometheus:
counters of one process since its start, and the backlog of its database.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.memory_server.api.server import ServerDep
from hermes.memory_server.db.database import Database
from hermes.memory_server.engine.worker import JobWorker

PREFIX = "hermes_memory_"
Line = tuple[str, str, Mapping[str, object], float]
"""Name, kind, labels and value. Lines with one name are adjacent."""


# prometheus-client takes 20 ms to import, and 4 instead of 0.4 µs to count a request.
class RequestCounts:
    """Counts requests by route and status. Used only on the event loop."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def count(self, visit: Visit) -> None:
        self._requests[visit.method, visit.route, visit.status] += 1
        self._seconds[visit.method, visit.route] += visit.seconds

    def lines(self) -> Iterator[Line]:
        for (method, path, status), number in sorted(self._requests.items()):
            yield "requests_total", "counter", {"method": method, "path": path, "status": status}, number
        for (method, path), spent in sorted(self._seconds.items()):
            yield "request_seconds_total", "counter", {"method": method, "path": path}, spent


async def show_metrics(here: ServerDep, requests: RequestCounts) -> Response:
    """Return all metrics of a serving process."""
    await here.health.status()
    backlog = here.health.backlog
    lines = [
        *requests.lines(),
        *_model_lines(here.models.counter.metrics),
        ("jobs_waiting", "gauge", {}, backlog.waiting),
        ("oldest_job_seconds", "gauge", {}, backlog.oldest),
        *process_lines(here.worker, {"requests": here.database}),
    ]
    return write_lines(lines)


def process_lines(worker: JobWorker | None, databases: Mapping[str, Database]) -> Iterator[Line]:
    """Yield metrics of a process: its jobs, connections and resources."""
    if worker is not None:
        databases = {**databases, "jobs": worker.database}
        for (kind, outcome), number in sorted(worker.outcomes.items()):
            yield "jobs_total", "counter", {"kind": kind, "outcome": outcome}, number
    loads = [(use, load) for use, database in databases.items() if (load := database.measure()) is not None]
    for use, load in loads:
        yield "database_connections", "gauge", {"use": use, "state": "busy"}, load.connections_busy
        yield "database_connections", "gauge", {"use": use, "state": "most"}, load.connections_most
    for use, load in loads:
        yield "database_retries_total", "counter", {"use": use, "reason": "conflict"}, load.conflicts
        yield "database_retries_total", "counter", {"use": use, "reason": "connection"}, load.lost_connections
    yield "process_cpu_seconds_total", "counter", {}, time.process_time()


def write_lines(lines: list[Line] | Iterator[Line]) -> Response:
    """Return metrics in text format. Nothing is escaped, since all labels are ours."""
    text, before = "", ""
    for name, kind, labels, value in lines:
        text += f"# TYPE {PREFIX}{name} {kind}\n" if name != before else ""
        shown = ",".join(f'{label}="{given}"' for label, given in labels.items())
        text += f"{PREFIX}{name}{f'{{{shown}}}' if shown else ''} {f'{value:.6f}'.rstrip('0').rstrip('.')}\n"
        before = name
    return Response(text, media_type="text/plain; version=0.0.4")


def _model_lines(counted: Mapping[tuple[str, str, str], int]) -> Iterator[Line]:
    """Yield model requests, tokens and seconds, by purpose and outcome."""
    for name in ("calls", "tokens", "milliseconds"):
        shown, scale = ("seconds", 1000) if name == "milliseconds" else (name, 1)
        for (of, purpose, outcome), number in sorted(counted.items()):
            if of == name:
                yield f"model_{shown}_total", "counter", {"purpose": purpose, "outcome": outcome}, number / scale


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
