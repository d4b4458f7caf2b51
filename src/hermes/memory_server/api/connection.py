"""HTTP connections with timeouts for the request head and for taking the response, and a limit on their number."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hermes.memory_server import limits
from hermes.memory_server.api.intake import ASKER, CROWDED, TOO_MANY_CONNECTIONS
from hermes.memory_server.db.scheduling import ScheduledClient

MAX_HEALTH_CONNECTIONS = 16
"""Connections beyond the maximum, on which only `/health` is answered."""


def find_max_connections() -> int:
    """Return the maximum number of connections: at most half of the files that this process may open."""
    if importlib.util.find_spec("resource") is None:
        return limits.MAX_CONNECTIONS
    resource = importlib.import_module("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(limits.MAX_CONNECTIONS, soft // 2)


MAX_CONNECTIONS = find_max_connections()


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn with limits. It closes if the request head arrives too slowly or is too long, or if the
    client does not take the response. Connections beyond the maximum serve only `/health`."""

    _waiting: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _unsent_bytes = 0
    _is_late = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._scheduled_client = ScheduledClient()
        self._wait_for_head()
        self._is_late = len(self.connections) > MAX_CONNECTIONS
        if len(self.connections) > MAX_CONNECTIONS + MAX_HEALTH_CONNECTIONS:
            self._refuse(503, TOO_MANY_CONNECTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._sending is not None:
            self._sending.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unsent_bytes = sys.maxsize  # everything written from now on counts as progress

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_sending()

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:
            self._head_bytes += len(data)
            # Most of it may be a body that arrived with the head.
            if self._head_bytes > limits.HEAD_BYTES and b"\r\n\r\n" not in data:
                self._end()
                return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP with an error body like that of every refusal."""
        self._refuse(400, msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ASKER] = self._scheduled_client  # type: ignore[literal-required]
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self.scope[CROWDED] = self._is_late and len(self.connections) > MAX_CONNECTIONS  # type: ignore[literal-required]
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._head_bytes = 0
            self._waiting = self.loop.call_later(limits.HEAD_SECONDS, self._end)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _watch_sending(self) -> None:
        if self._sending is None:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._sending = self.loop.call_later(limits.SEND_SECONDS, self._check_sending)

    def _check_sending(self) -> None:
        """Abort the connection if the client has taken nothing since the last check."""
        self._sending = None
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent >= self._unsent_bytes:
            self.transport.abort()
        elif unsent:
            self._watch_sending()

    def _refuse(self, status: int, reason: str) -> None:
        body = json.dumps({"detail": reason}).encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        retry = "Retry-After: 1\r\n" if status == 503 else ""
        self.transport.write(f"{head}{retry}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def _end(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.close()
