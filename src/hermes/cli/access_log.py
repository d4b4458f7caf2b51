"""The access log of the memory server: a line for each request, written by a thread, so that no request waits for it.

    time client method path status milliseconds

No query, no header and no body: what people say and the keys they hold are not in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from pathlib import Path
from typing import Self

from hermes.log_file import LogFile
from hermes.memory_server.api.traffic import Visit

log = logging.getLogger(__name__)
LARGEST = 5 * 1024 * 1024
KEPT = 3
WAITING = 10_000
"""Lines that wait to be written at most; where the disk is slower, later ones are counted instead."""
GATHER = 0.5
"""Seconds that lines gather before they are written together."""
PATH_CHARS = 500


class AccessLog:
    """Writes until it is closed, at the end of its block or before, and then what is left."""

    def __init__(self, path: Path) -> None:
        """Where the file cannot be opened it is told once, and memory is served without it."""
        self._file: LogFile | None = None
        try:
            self._file = LogFile(path, largest=LARGEST, kept=KEPT)
        except OSError as error:
            log.warning("cannot write the access log %s: %s", path, error.strerror)
        self._lines: deque[tuple[float, Visit]] = deque()
        self._lost = 0
        self._news, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-access-log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left. Closing twice is fine."""
        self._over.set()
        self._news.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def add(self, visit: Visit) -> None:
        """One more request. Takes no time."""
        if self._file is None:
            return
        if len(self._lines) >= WAITING:
            self._lost += 1
            return
        self._lines.append((time.time(), visit))
        self._news.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._news.wait()
            self._over.wait(GATHER)
            self._news.clear()
            self._write()

    def _write(self) -> None:
        lines = [_line(*self._lines.popleft()) for _ in range(len(self._lines))]
        if (lost := self._lost) and lines:
            self._lost -= lost
            lines.append(f"{_time(time.time())} {lost} more requests were not written down: the disk is too slow")
        if lines and self._file is not None:
            self._file.emit(logging.makeLogRecord({"msg": "\n".join(lines)}))


def _line(at: float, visit: Visit) -> str:
    # What a path holds beyond letters is written as in a request: a line stays one line.
    path = visit.path[:PATH_CHARS].encode("unicode_escape").decode("ascii").replace(" ", "%20")
    return f"{_time(at)} {visit.client} {visit.method} {path} {visit.status} {visit.seconds * 1000:.1f}"


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
