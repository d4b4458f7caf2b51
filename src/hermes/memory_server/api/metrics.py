"""How many requests, with which outcome and how long: as Prometheus reads it."""

from __future__ import annotations

from collections import Counter, defaultdict

from hermes.memory_server.api.traffic import Visit


class Metrics:
    """Counts of one process, counted and read on its loop."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def count(self, visit: Visit) -> None:
        """One more request to a route."""
        self._requests[visit.method, visit.route, visit.status] += 1
        self._seconds[visit.method, visit.route] += visit.seconds

    def text(self) -> str:
        """All counts in the text format. Nothing is escaped: methods are those of HTTP, and routes are ours."""
        lines = ["# TYPE hermes_memory_requests_total counter"]
        lines += [
            f'hermes_memory_requests_total{{method="{method}",path="{path}",status="{status}"}} {number}'
            for (method, path, status), number in sorted(self._requests.items())
        ]
        lines.append("# TYPE hermes_memory_request_seconds_total counter")
        lines += [
            f'hermes_memory_request_seconds_total{{method="{method}",path="{path}"}} {spent:.6f}'
            for (method, path), spent in sorted(self._seconds.items())
        ]
        return "\n".join(lines) + "\n"
