"""Work that a person may stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Stopping:
    """Waits for work to end or for the person to stop it, whichever comes first, with one task for many waits."""

    def __init__(self, stopped: asyncio.Future[Any]) -> None:
        self._stopped = stopped

    async def unless_stopped(self, work: Awaitable[T]) -> T | None:
        """The result of `work`; None if the person stops it: then it was cancelled and has ended."""
        over = False
        limit = asyncio.timeout(None)

        def interrupt(_: asyncio.Future[Any]) -> None:
            if not over:
                limit.reschedule(asyncio.get_running_loop().time())

        try:
            async with limit:
                self._stopped.add_done_callback(interrupt)
                try:
                    return await work
                finally:
                    over = True
                    self._stopped.remove_done_callback(interrupt)
        except TimeoutError:
            if not limit.expired():
                raise
            return None


@asynccontextmanager
async def heeding(stop: asyncio.Event) -> AsyncIterator[Stopping]:
    """Heed `stop` while the block runs."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        yield Stopping(stopped)
    finally:
        stopped.cancel()


async def unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """The result of `work`; None if the person stops it: then it was cancelled and has ended."""
    async with heeding(stop) as stopping:
        return await stopping.unless_stopped(work)
