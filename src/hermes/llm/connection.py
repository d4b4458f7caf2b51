"""HTTP to one endpoint. The only module that knows httpx; every trouble leaves it as a ModelFault."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, cast

from hermes.llm.endpoint import Endpoint
from hermes.llm.failures import ModelFault, from_transport
from hermes.llm.patience import OutOfPatience, Patience, Timeouts

# Else httpx would load its own command line, and rich with it: a third of what importing it takes, on a person's wait.
sys.modules.setdefault("httpx._main", cast(ModuleType, None))

if TYPE_CHECKING:
    import ssl

    import httpx

KEEP_ALIVE = 30.0
"""Seconds for which an idle connection is kept: long enough for a tool to run between two calls."""
POOL_TIMEOUT_SECONDS = 5.0
MAX_IDLE_CONNECTIONS = 100


class OpenResponse:
    """An answer whose body has not been read yet."""

    def __init__(self, response: httpx.Response, endpoint: Endpoint, patience: Patience, timeouts: Timeouts) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.is_read = False
        """The body was read to its end: only then is the connection known to be in order."""
        self._chunks = response.aiter_bytes()
        self._endpoint = endpoint
        self._patience = patience
        self._timeouts = timeouts
        self._heard_at = patience.spent

    def hear_words(self) -> None:
        """What came was a part of the reply, so it is not silent: other signs of life do not count."""
        self._heard_at = self._patience.spent

    async def next_chunk(self, limit: float | None = None) -> bytes | None:
        """The next bytes, None at the end. Raises ModelFault after a gap of more than `limit` seconds, or of `idle`,
        after a silence, and when all of it takes too long."""
        import httpx

        gap = limit or self._timeouts.idle
        quiet = self._timeouts.silence - (self._patience.spent - self._heard_at)
        try:
            chunk = await self._patience.wait(anext(self._chunks, None), min(gap, quiet))
        except OutOfPatience as error:
            late = f"sent nothing more for {error.seconds:g} s{self._timeouts.named}"
            if gap > quiet:
                late = f"sent no word of a reply for {self._timeouts.silence:g} s (`model.silence`)"
            raise _timed_out(self._endpoint, error, late) from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise from_transport(self._endpoint, error) from error
        self.is_read = chunk is None
        return chunk

    async def text(self, largest: int) -> str:
        """The rest of the body, or about `largest` bytes of it."""
        pieces: list[bytes] = []
        size = 0
        while size < largest and (chunk := await self.next_chunk()) is not None:
            pieces.append(chunk)
            size += len(chunk)
            self.hear_words()
        return b"".join(pieces).decode(errors="replace")


def _timed_out(endpoint: Endpoint, error: OutOfPatience, late: str) -> ModelFault:
    if error.together:
        late = f"took longer than {error.seconds:g} s for a reply (`model.total_timeout`)"
    return ModelFault("timeout", f"{endpoint.netloc} {late}")


class ConnectionPool:
    """Connections to one endpoint, opened when first needed. One is used again only after an answer that was read to
    its end: httpx may take a connection for busy, for ever, once a request on it was cancelled.

    Each is a client of its own: a client that holds many looks at all of them, several times, for every request, and
    keeps those of cancelled requests open.
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
        self, method: str, path: str, patience: Patience, body: bytes | None = None
    ) -> AsyncGenerator[OpenResponse, None]:
        """Send a request and give the answer, whatever its status. Raises ModelFault."""
        closings = self._closings
        client = self._free.pop() if self._free else self._new_client()
        answer: OpenResponse | None = None
        try:
            response = await self._send(client, method, path, patience, body)
            answer = OpenResponse(response, self._endpoint, patience, self._timeouts)
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
        """Close what is open; what is in use closes when it is free. The next exchange opens a new one."""
        self._closings += 1
        free, self._free = self._free, []
        for client in free:
            await client.aclose()

    async def _send(
        self, client: httpx.AsyncClient, method: str, path: str, patience: Patience, body: bytes | None
    ) -> httpx.Response:
        import httpx

        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            request = client.build_request(method, self._url(path), content=body, headers=headers)
            return await patience.wait(client.send(request, stream=True), self._timeouts.first_byte)
        except OutOfPatience as error:
            late = f"did not answer within {error.seconds:g} s{self._timeouts.named}"
            raise _timed_out(self._endpoint, error, late) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise from_transport(self._endpoint, error) from error

    def _url(self, path: str) -> httpx.URL:
        """Parsed once: httpx would do so twice for every request."""
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
                # Reading is timed by Patience, which also knows the total.
                timeout=httpx.Timeout(None, connect=self._timeouts.connect, pool=POOL_TIMEOUT_SECONDS),
                limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEP_ALIVE),
                # Proxies and certificates come from the environment, but nothing stands between us and this machine.
                trust_env=not self._endpoint.is_loopback,
                # Loading the certificates takes 60 ms: once, and not at all without TLS.
                verify=self._tls or False,
            )
        except (ImportError, ValueError, OSError) as error:
            what = "cannot be reached: a proxy or SSL_CERT_FILE variable holds what cannot be used"
            raise ModelFault("refused", f"{self._endpoint.netloc} {what}") from error
