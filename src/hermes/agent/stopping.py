"""Work that a person may stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def watch_stop(stop: asyncio.Event) -> AsyncIterator[asyncio.Future[Any]]:
    """Yield a future that completes when `stop` is set; one task serves many calls of `unless_done`."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        yield stopped
    finally:
        stopped.cancel()


async def unless_done(stopped: asyncio.Future[Any], work: Awaitable[T]) -> T | None:
    """Return the result of `work`, or None if `stopped` completes first; then `work` was cancelled and has ended."""
    over = False
    limit = asyncio.timeout(None)

    def interrupt(_: asyncio.Future[Any]) -> None:
        if not over:
            limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            stopped.add_done_callback(interrupt)
            try:
                return await work
            finally:
                over = True
                stopped.remove_done_callback(interrupt)
    except TimeoutError:
        if not limit.expired():
            raise
        return None


async def unless_stopped(work: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Return the result of `work`, or None if the person stops it; then `work` was cancelled and has ended."""
    async with watch_stop(stop) as stopped:
        return await unless_done(stopped, work)
