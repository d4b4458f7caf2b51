"""`make quick` starts no process: a test without the mark `processes` that starts one fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})


class ProcessGuard:
    """Refuses processes while a test must not start any. An audit hook cannot be removed, so create only one."""

    def __init__(self) -> None:
        self._refused: str | None = None
        sys.addaudithook(self._check)

    def _check(self, event: str, _arguments: tuple[object, ...]) -> None:
        if self._refused and event in STARTS:
            raise RuntimeError(f"{self._refused} starts a process: mark it with pytest.mark.processes")

    @contextmanager
    def refusing(self, test: str) -> Iterator[None]:
        """Refuse processes for the length of a block."""
        self._refused = test
        try:
            yield
        finally:
            self._refused = None
