"""How many requests, with which outcome and how long: as Prometheus reads it."""

from __future__ import annotations

import threading
from collections import Counter

from hermes.memory_server.api.traffic import Visit


class Metrics:
    """Counts of one process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()

    def count(self, visit: Visit) -> None:
        """One more request to a route."""
        with self._guard:
            self._requests[visit.method, visit.route, visit.status] += 1
            self._seconds[visit.method, visit.route] += visit.seconds  # type: ignore[assignment]

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
