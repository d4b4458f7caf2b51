"""A web server of aiohttp in a separate thread, for platforms on loopback."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from aiohttp import web

T = TypeVar("T")


class WebServer:
    """Serves `make_app()` while a block runs. `changed` is notified of every event."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.changed = threading.Condition()

    def make_app(self) -> web.Application:
        """Return the served application."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def cut(self) -> None:
        """Abort all connections."""

        async def cut() -> None:
            for connection in list(self._runner.server.connections if self._runner.server else ()):
                if connection.transport is not None:
                    connection.transport.abort()

        self.do(cut())

    def until(self, look: Callable[[], T], *, seconds: float = 60.0) -> T:
        """Wait until `look` returns something."""
        end = time.monotonic() + seconds
        with self.changed:
            while not (found := look()):
                left = end - time.monotonic()
                assert left > 0, f"it did not happen; the last calls: {self.calls[-5:]}"
                self.changed.wait(min(left, 0.1))
            return found

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        started.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        self._runner = web.AppRunner(self.make_app(), shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        for connection in list(self._runner.server.connections if self._runner.server else ()):
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
