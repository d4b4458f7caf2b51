"""The memory server's access log: one line per request, written by a background thread so that requests never wait for
the disk.

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
MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_OLD_FILES = 3
MAX_QUEUED_LINES = 10_000
"""Queue limit. When the disk is slower than the traffic, further lines are dropped and counted."""
GATHER_SECONDS = 0.5
"""Lines are collected for this long and written together."""
MAX_PATH_CHARS = 500


class AccessLog:
    """A context manager that writes queued lines until it closes. Closing writes the rest."""

    def __init__(self, path: Path) -> None:
        """Open the log file. If that fails, log one warning and discard all lines."""
        self._file: LogFile | None = None
        try:
            self._file = LogFile(path, largest=MAX_FILE_BYTES, kept=MAX_OLD_FILES)
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
        """Write the queued lines and close the file. Idempotent."""
        self._over.set()
        self._news.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def add(self, visit: Visit) -> None:
        """Queue a line for `visit`. Does not block."""
        if self._file is None:
            return
        if len(self._lines) >= MAX_QUEUED_LINES:
            self._lost += 1
            return
        self._lines.append((time.time(), visit))
        self._news.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._news.wait()
            self._over.wait(GATHER_SECONDS)
            self._news.clear()
            self._write()

    def _write(self) -> None:
        lines = [_line(*self._lines.popleft()) for _ in range(len(self._lines))]
        if (lost := self._lost) and lines:
            self._lost -= lost
            lines.append(f"{_time(time.time())} {lost} requests are missing here: the disk was too slow to log them")
        if lines and self._file is not None:
            self._file.emit(logging.makeLogRecord({"msg": "\n".join(lines)}))


def _line(at: float, visit: Visit) -> str:
    # Escape control characters and spaces: every request stays one line.
    path = visit.path[:MAX_PATH_CHARS].encode("unicode_escape").decode("ascii").replace(" ", "%20")
    return f"{_time(at)} {visit.client} {visit.method} {path} {visit.status} {visit.seconds * 1000:.1f}"


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
