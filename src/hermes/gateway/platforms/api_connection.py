"""A connection to the API: no client can hold one without doing something with it."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.h11_impl import RequestResponseCycle as Cycle

from hermes.gateway.platforms.api_wire import ApiError

TOO_MANY = ApiError(503, "too many connections; try again", kind="server_error", code="overloaded")


class PatientProtocol(H11Protocol):
    """One connection. Heads that do not come and replies that nobody reads end it; so does one too many."""

    patience: float
    """Seconds that a client has for the head of a request, and for reading on when its reply has piled up."""
    most: int
    """Connections at the same time."""
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_too_many())
            transport.close()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop(self._head_timer)
            self._head_timer = None
        elif self._head_timer is None:
            self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._read_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._head_timer)
        self._stop(self._read_timer)
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.patience, self._give_up)

    def _give_up(self) -> None:
        if not self._is_answering():
            self.transport.abort()

    def _is_answering(self) -> bool:
        cycle: Cycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def patient_protocol(patience: float, most: int) -> type[PatientProtocol]:
    """The protocol with these limits; the server makes one for each connection."""
    return type("LimitedProtocol", (PatientProtocol,), {"patience": patience, "most": most})


def _too_many() -> bytes:
    body = json.dumps(TOO_MANY.body).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + body
