"""A loopback server in a thread with an event loop: it answers even while the test blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from tests.llm.loopback import LoopbackServer

START_TIMEOUT_SECONDS = 30.0
Server = TypeVar("Server", bound=LoopbackServer)


@contextmanager
def beside(server: Server) -> Iterator[Server]:
    """Serve inside the block; connections that are open at its end are closed."""
    started: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with server:
            started.set_result(lambda: loop.call_soon_threadsafe(over.set))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="model")
    thread.start()
    end = started.result(START_TIMEOUT_SECONDS)
    try:
        yield server
    finally:
        end()
        thread.join()
