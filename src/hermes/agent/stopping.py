"""Work that a person may stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def heeding(stop: asyncio.Event) -> AsyncIterator[asyncio.Future[Any]]:
    """What is done once `stop` is set, while the block runs: one task for many calls of `unless_done`."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        yield stopped
    finally:
        stopped.cancel()


async def unless_done(stopped: asyncio.Future[Any], work: Awaitable[T]) -> T | None:
    """The result of `work`; None if `stopped` is done before: then it was cancelled and has ended."""
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
    """The result of `work`; None if the person stops it: then it was cancelled and has ended."""
    async with heeding(stop) as stopped:
        return await unless_done(stopped, work)
