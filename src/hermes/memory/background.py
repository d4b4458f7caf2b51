"""Background work of memory. Failures are logged, since nobody waits for the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from hermes.errors import HermesError

log = logging.getLogger("hermes.memory")


class Background:
    """The background tasks of one provider."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        async def run() -> None:
            with self.logged(what):
                await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextmanager
    def logged(self, what: str) -> Iterator[None]:
        """Log an error of the block instead of raising it."""
        try:
            yield
        except HermesError as error:
            log.warning("memory provider %s: %s failed: %s", self._provider, what, error.line())

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until all tasks have ended, or `seconds` have passed."""
        until = asyncio.get_running_loop().time() + seconds
        while self._tasks and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
