"""Work that a person may stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """What `work` gives; None once the person stops it, and then it is at rest."""
    doing = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    either: set[asyncio.Future[Any]] = {doing, stopped}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        stopped.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait({doing})
