"""Helpers to test the synchronous and asynchronous methods of the official SDK with the same tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from honcho import Honcho

WAIT_TIMEOUT_SECONDS = 100.0


@dataclass(frozen=True, slots=True)
class Caller:
    """`await call(peer.chat, "…")` calls the method in a thread, or its asynchronous counterpart under `.aio`."""

    in_async: bool

    async def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self.in_async:
            return await asyncio.to_thread(method, *args, **kwargs)
        owner: Any = method.__self__  # type: ignore[attr-defined]
        twin = getattr(owner.aio, method.__name__)
        return await twin(*args, **kwargs)

    async def items(self, page: Any) -> list[Any]:
        """Return the items of a page and of all following pages."""
        if self.in_async:
            return [item async for item in page]
        return await asyncio.to_thread(list, page)

    async def pieces(self, stream: Any) -> list[str]:
        """Return the pieces of a streamed answer."""
        if self.in_async:
            return [piece async for piece in stream]
        return await asyncio.to_thread(list, stream)


@asynccontextmanager
async def connected(url: str, workspace: str, key: str = "unused") -> AsyncIterator[Honcho]:
    """Yield the official client, and close its connections, for which it has no public method."""
    client = Honcho(workspace_id=workspace, base_url=url, api_key=key, max_retries=0)
    try:
        yield client
    finally:
        client._http.close()
        await client._async_http_client.close()


async def eventually(look: Callable[[], Awaitable[Any]], good: Callable[[Any], bool] = bool) -> Any:
    """Poll `look` until its result is good, and return that."""
    deadline = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while True:
        found = await look()
        if good(found):
            return found
        assert time.monotonic() < deadline, f"still {found!r}"
        await asyncio.sleep(0.02)
