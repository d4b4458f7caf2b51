"""The HTTP server of everyone who serves: uvicorn, as a guest in the loop and process of its host."""

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
    """Serves one application. It ends when told, and by nothing else: signals are its host's, and so is the log."""

    def __init__(
        self,
        app: Any,
        *,
        drain: int,
        http: type[asyncio.Protocol] | Literal["auto"] = "auto",
        lifespan: Literal["on", "off"] = "off",
        keep_alive: int = 5,
    ) -> None:
        """`drain`: seconds that requests under way have at the end, `keep_alive`: that a connection may be idle."""
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
        """Take nothing more, finish what is being done, and end."""
        self.should_exit = True

    async def serve_on(self, listener: socket.socket) -> None:
        """Serve until told to end, or cancelled; what is being answered is finished first either way."""
        serving = asyncio.create_task(self.serve(sockets=[listener]), name="http")
        try:
            await asyncio.shield(serving)
        finally:
            self.end()
            await asyncio.wait({serving})


def listen(host: str, port: int, advice: str) -> socket.socket:
    """A bound socket, which the caller closes: who connects from now on waits for the first answer and is not refused.

    Each piece of an answer is sent at once. UsageError, with the advice, where the place is taken or not ours."""
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
    # Connections inherit it. Without it the second piece waits until the first is acknowledged, some 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Else the system takes megabytes of a response for each client that reads nothing.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener
