"""A connection whose client must say what it wants within a time and a size, and in HTTP."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hermes.memory_server import limits
from hermes.memory_server.api.intake import ASKER
from hermes.memory_server.db.patience import Asker


class PatientConnection(HttpToolsProtocol):
    """As uvicorn's, but a request line with headers that comes too slowly, or is too long, ends the connection."""

    _waiting: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asker = Asker()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:
            self._head_bytes += len(data)
            # Much of it may be a body that came along.
            if self._head_bytes > limits.HEAD_BYTES and b"\r\n\r\n" not in data:
                self._end()
                return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused in the shape of every refusal."""
        body = json.dumps({"detail": msg}).encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ASKER] = self._asker  # type: ignore[literal-required]
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._head_bytes = 0
            self._waiting = self.loop.call_later(limits.HEAD_SECONDS, self._end)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _end(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.close()
