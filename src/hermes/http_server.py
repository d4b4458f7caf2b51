"""The HTTP server of all our services: uvicorn as a guest in its host's event loop and process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import uvicorn

from hermes.errors import UsageError

SEND_BUFFER_BYTES = 262_144


class GuestServer(uvicorn.Server):
    """Serves one application until `end`. Signals and the log belong to the host."""

    def __init__(
        self,
        app: Any,
        *,
        drain: int,
        http: type[asyncio.Protocol] | Literal["auto"] = "auto",
        lifespan: Literal["on", "off"] = "off",
        keep_alive: int = 5,
    ) -> None:
        """`drain`: seconds that running requests get at the end; `keep_alive`: seconds that a connection may be
        idle."""
        config = uvicorn.Config(
            app,
            http=http,
            lifespan=lifespan,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=drain,
        )
        super().__init__(config)
        ours, its = logging.getLogger("hermes"), logging.getLogger("uvicorn")
        its.handlers, its.propagate = list(ours.handlers), False
        its.setLevel(logging.WARNING)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Accept nothing more, finish running requests, and end."""
        self.should_exit = True

    async def serve_on(self, listener: socket.socket) -> None:
        """Serve until `end` or cancellation; running requests are finished in both cases."""
        serving = asyncio.create_task(self.serve(sockets=[listener]), name="http")
        try:
            await asyncio.shield(serving)
        finally:
            self.end()
            await asyncio.wait({serving})


def listen(host: str, port: int, advice: str) -> socket.socket:
    """Return a bound socket, which the caller closes. Clients that connect from now on wait for the server instead of
    being refused.

    Each piece of a response is sent at once. Raises UsageError, with the advice, if the address is taken or not ours.
    """
    try:
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=2048,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]  # the place is named already
        raise UsageError(f"cannot listen on {host}:{port}: {reason}; {advice}") from error
    # Connections inherit it. Without it the second piece waits for the acknowledgement of the first, some 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Without it the system buffers megabytes of a response for each client that reads nothing.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener
