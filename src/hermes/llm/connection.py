"""HTTP to one endpoint. The only module that knows httpx; every trouble leaves it as a Fault."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes.llm.endpoint import Endpoint
from hermes.llm.failures import Fault, from_transport
from hermes.llm.patience import OutOfPatience, Patience, Timeouts

if TYPE_CHECKING:
    import httpx

KEEP_ALIVE = 30.0
"""Seconds for which an idle connection is kept: long enough for a tool to run between two calls."""


class Answer:
    """An answer whose body has not been read yet."""

    def __init__(self, response: httpx.Response, endpoint: Endpoint, patience: Patience, timeouts: Timeouts) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._chunks = response.aiter_bytes()
        self._endpoint = endpoint
        self._patience = patience
        self._timeouts = timeouts

    async def next_chunk(self, limit: float | None = None) -> bytes | None:
        """The next bytes, None at the end. Raises Fault after a gap of more than `limit` seconds, or of `idle`."""
        import httpx

        try:
            return await self._patience.wait(anext(self._chunks, None), limit or self._timeouts.idle)
        except OutOfPatience as error:
            raise Fault("timeout", f"{self._endpoint.netloc} sent nothing more for {error.seconds:g} s") from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise from_transport(self._endpoint, error) from error

    async def text(self, largest: int) -> str:
        """The rest of the body, or about `largest` bytes of it."""
        pieces: list[bytes] = []
        while sum(map(len, pieces)) < largest and (chunk := await self.next_chunk()) is not None:
            pieces.append(chunk)
        return b"".join(pieces).decode(errors="replace")


class Connection:
    """A pool of connections to one endpoint, opened when first needed."""

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def exchange(
        self, method: str, path: str, patience: Patience, body: bytes | None = None
    ) -> AsyncGenerator[Answer, None]:
        """Send a request and give the answer, whatever its status. Raises Fault."""
        import httpx

        try:
            response = await self._send(method, path, patience, body)
        except OutOfPatience as error:
            raise Fault("timeout", f"{self._endpoint.netloc} did not answer within {error.seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise from_transport(self._endpoint, error) from error
        try:
            yield Answer(response, self._endpoint, patience, self._timeouts)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close what is open. The next exchange opens it again."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _send(self, method: str, path: str, patience: Patience, body: bytes | None) -> httpx.Response:
        client = self._open()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        request = client.build_request(method, self._endpoint.url(path), content=body, headers=headers)
        return await patience.wait(client.send(request, stream=True), self._timeouts.first_byte)

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        import httpx

        try:
            return httpx.AsyncClient(
                headers={"User-Agent": "hermes", **self._endpoint.headers()},
                # Reading is timed by Patience, which also knows the total.
                timeout=httpx.Timeout(None, connect=self._timeouts.connect),
                limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE),
                # Proxies and certificates come from the environment, but nothing stands between us and this machine.
                trust_env=not self._endpoint.is_loopback,
                # Without TLS there is nothing to verify, and loading the certificates takes 60 ms.
                verify=self._endpoint.scheme == "https",
            )
        except (ImportError, ValueError, OSError) as error:
            what = "cannot be reached: a proxy or SSL_CERT_FILE variable holds what cannot be used"
            raise Fault("refused", f"{self._endpoint.netloc} {what}") from error
