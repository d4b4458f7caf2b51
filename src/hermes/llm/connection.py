"""HTTP connections to one endpoint. Only this module uses httpx; every error leaves it as a ModelFault."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, cast

from hermes.llm.endpoint import Endpoint
from hermes.llm.failures import ModelFault, from_transport
from hermes.llm.timeouts import BudgetExceeded, TimeBudget, Timeouts

# Without this, httpx imports its command line and rich: a third of its import time, while a person waits.
sys.modules.setdefault("httpx._main", cast(ModuleType, None))

# The openai package takes 0.5 s and more to import, at every `hermes chat -q`. The protocol is small.
if TYPE_CHECKING:
    import ssl

    import httpx

KEEP_ALIVE_SECONDS = 30.0
"""Idle connections are kept this long: enough for a tool to run between two calls."""
POOL_TIMEOUT_SECONDS = 5.0
MAX_IDLE_CONNECTIONS = 100


class OpenResponse:
    """A response whose body has not been read yet."""

    def __init__(self, response: httpx.Response, endpoint: Endpoint, budget: TimeBudget, timeouts: Timeouts) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.is_read = False
        """True once the body was read to its end: only then may the connection be reused."""
        self._chunks = response.aiter_bytes()
        self._endpoint = endpoint
        self._budget = budget
        self._timeouts = timeouts
        self._progress_at = budget.spent

    def mark_progress(self) -> None:
        """Restart the silence timeout: part of the reply arrived. Keep-alive comments do not count."""
        self._progress_at = self._budget.spent

    async def next_chunk(self, limit: float | None = None) -> bytes | None:
        """Return the next bytes, or None at the end. Raises ModelFault after a gap of more than `limit` seconds (by
        default `idle`), after `silence` seconds without part of a reply, or when the total time is used up."""
        import httpx

        gap = limit or self._timeouts.idle
        quiet = self._timeouts.silence - (self._budget.spent - self._progress_at)
        try:
            chunk = await self._budget.wait(anext(self._chunks, None), min(gap, quiet))
        except BudgetExceeded as error:
            late = f"sent nothing more for {error.seconds:g} s{self._timeouts.named}"
            if gap > quiet:
                late = f"sent no word of a reply for {self._timeouts.silence:g} s (`model.silence`)"
            raise _timed_out(self._endpoint, error, late) from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise from_transport(self._endpoint, error) from error
        self.is_read = chunk is None
        return chunk

    async def text(self, max_bytes: int) -> str:
        """Return the rest of the body, or roughly its first `max_bytes` bytes."""
        pieces: list[bytes] = []
        size = 0
        while size < max_bytes and (chunk := await self.next_chunk()) is not None:
            pieces.append(chunk)
            size += len(chunk)
            self.mark_progress()
        return b"".join(pieces).decode(errors="replace")


def _timed_out(endpoint: Endpoint, error: BudgetExceeded, late: str) -> ModelFault:
    if error.is_total:
        late = f"took longer than {error.seconds:g} s for a reply (`model.total_timeout`)"
    return ModelFault("timeout", f"{endpoint.netloc} {late}")


# One shared client kept the socket of 136 of 1,000 cancelled requests open (`python -m bench turn`).
class ConnectionPool:
    """Connections to one endpoint, opened when first needed. A connection is reused only if its last response was read
    to the end: after a cancelled request httpx may consider it busy for ever.

    Each connection is a separate client. A client with many connections inspects all of them several times per
    request, and keeps those of cancelled requests open.
    """

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._free: list[httpx.AsyncClient] = []
        self._tls: ssl.SSLContext | None = None
        self._urls: dict[str, httpx.URL] = {}
        self._closings = 0

    @asynccontextmanager
    async def exchange(
        self, method: str, path: str, budget: TimeBudget, body: bytes | None = None
    ) -> AsyncGenerator[OpenResponse, None]:
        """Send a request and yield the response, whatever its status. Raises ModelFault."""
        closings = self._closings
        client = self._free.pop() if self._free else self._new_client()
        answer: OpenResponse | None = None
        try:
            response = await self._send(client, method, path, budget, body)
            answer = OpenResponse(response, self._endpoint, budget, self._timeouts)
            try:
                yield answer
            finally:
                await response.aclose()
        finally:
            is_clean = answer is not None and answer.is_read
            if is_clean and closings == self._closings and len(self._free) < MAX_IDLE_CONNECTIONS:
                self._free.append(client)
            else:
                await client.aclose()

    async def close(self) -> None:
        """Close idle connections now, and busy ones when they are released. The next exchange opens a new one."""
        self._closings += 1
        free, self._free = self._free, []
        for client in free:
            await client.aclose()

    async def _send(
        self, client: httpx.AsyncClient, method: str, path: str, budget: TimeBudget, body: bytes | None
    ) -> httpx.Response:
        import httpx

        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            request = client.build_request(method, self._url(path), content=body, headers=headers)
            return await budget.wait(client.send(request, stream=True), self._timeouts.first_byte)
        except BudgetExceeded as error:
            late = f"did not answer within {error.seconds:g} s{self._timeouts.named}"
            raise _timed_out(self._endpoint, error, late) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise from_transport(self._endpoint, error) from error

    def _url(self, path: str) -> httpx.URL:
        """Return the parsed URL for `path`, cached: httpx would parse it twice per request."""
        import httpx

        if path not in self._urls:
            self._urls[path] = httpx.URL(self._endpoint.url(path))
        return self._urls[path]

    def _new_client(self) -> httpx.AsyncClient:
        import httpx

        try:
            if self._endpoint.scheme == "https" and self._tls is None:
                self._tls = httpx.create_ssl_context(trust_env=not self._endpoint.is_loopback)
            return httpx.AsyncClient(
                headers={"User-Agent": "hermes", **self._endpoint.headers()},
                # TimeBudget times the reads, since it also knows the total.
                timeout=httpx.Timeout(None, connect=self._timeouts.connect, pool=POOL_TIMEOUT_SECONDS),
                limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEP_ALIVE_SECONDS),
                # Proxies and certificates come from the environment, except for this machine.
                trust_env=not self._endpoint.is_loopback,
                # Loading the certificates takes 60 ms: do it once, and only for TLS.
                verify=self._tls or False,
            )
        except (ImportError, ValueError, OSError) as error:
            what = "cannot be reached: a proxy or SSL_CERT_FILE variable holds what cannot be used"
            raise ModelFault("refused", f"{self._endpoint.netloc} {what}") from error
