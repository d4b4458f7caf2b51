"""HTTP to one Honcho server: plain connections to a server on this machine, httpx for any other.

A turn sends two or three requests to the memory server on its machine. httpx would take longer for each than the server
takes to answer; other machines, TLS and proxies need it.

    HttpError
    ├── NotConnected   nothing was sent
    └── Broken         the request was sent, and no valid response came
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.loopback import is_loopback_url

if TYPE_CHECKING:
    import httpx
    from httptools import HttpResponseParser

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a response body."""
MAX_CONNECTIONS = 100
KEEP_ALIVE_SECONDS = 4.0
"""How long an idle connection is reused. Less than the server's 5 seconds."""
TARGET = re.compile(r"/[!-~]*")
"""Valid request targets."""


class HttpReply(Struct, frozen=True):
    """A response with any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpError(Exception):
    """A request without a response."""


class NotConnected(HttpError):
    """The server could not be reached, or nothing could be sent."""


class Broken(HttpError):
    """The connection broke, or the response is invalid."""


class HttpClient(Protocol):
    """A client of one server. Cancelling the caller ends its request."""

    async def send(self, method: str, path: str, body: bytes | None, key: str) -> HttpReply:
        """Send one request with this key, and never repeat it. Raises HttpError."""

    async def close(self) -> None: ...


def open_client(url: str, connect_seconds: float) -> HttpClient:
    """Return a client for the server at a URL. Raises NotConnected. Blocks, since it may read certificates."""
    if url.startswith("http://") and is_loopback_url(url):
        return LocalClient(url)
    return RemoteClient(url, connect_seconds)


class RemoteClient:
    """A client over httpx, with the environment's certificates and proxies."""

    def __init__(self, url: str, connect_seconds: float) -> None:
        import httpx

        self._url = url
        headers = {"Content-Type": "application/json"}
        timeout = httpx.Timeout(connect_seconds, read=None)  # each request has its own end
        try:
            verify, trust_env = not url.startswith("http://"), not is_loopback_url(url)
            self._client = httpx.AsyncClient(headers=headers, timeout=timeout, verify=verify, trust_env=trust_env)
        except (ValueError, ImportError, OSError) as error:  # a proxy or a certificate that the environment names
            raise NotConnected(str(error)) from error

    async def send(self, method: str, path: str, body: bytes | None, key: str) -> HttpReply:
        import httpx

        url, headers = f"{self._url}{path}", {"Authorization": f"Bearer {key}"}
        try:
            async with self._client.stream(method, url, content=body, headers=headers) as response:
                return HttpReply(response.status_code, response.headers, await _read(response))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL) as error:
            raise NotConnected(_words(error)) from error
        except httpx.HTTPError as error:
            raise Broken(_words(error)) from error

    async def close(self) -> None:
        await self._client.aclose()


async def _read(response: httpx.Response) -> bytes:
    read = bytearray()
    async for part in response.aiter_bytes():
        read += part
        if len(read) > MAX_BYTES:
            raise Broken(f"the response has more than {MAX_BYTES} bytes")
    return bytes(read)


class LocalClient:
    """A client for a server on this machine: HTTP/1.1 over persistent connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._prefix = parts.path.rstrip("/")
        named = parts.netloc.rpartition("@")[2]
        self._head = f" HTTP/1.1\r\nHost: {named}\r\nContent-Type: application/json\r\nAuthorization: Bearer "
        self._idle: list[tuple[float, _Connection]] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, method: str, path: str, body: bytes | None, key: str) -> HttpReply:
        target = f"{self._prefix}{path}"
        if TARGET.fullmatch(target) is None:
            raise NotConnected("the path holds characters that no URL has")
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        request = f"{method} {target}{self._head}{key}\r\n{length}\r\n".encode("latin-1", "replace") + (body or b"")
        async with self._room:
            connection = self._take_idle() or await self._connect()
            try:
                reply = await connection.exchange(request)
            except BaseException:  # also a cancel: what comes now belongs to no request
                connection.abort()
                raise
            if connection.is_reusable:
                self._idle.append((asyncio.get_running_loop().time(), connection))
            else:
                connection.abort()
            return reply

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.abort()

    def _take_idle(self) -> _Connection | None:
        """Return the most recently used connection that is still good, after closing stale ones."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_reusable and now - since < KEEP_ALIVE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            return (await loop.create_connection(lambda: _Connection(loop), self._host, self._port))[1]
        except OSError as error:
            raise NotConnected(_words(error)) from error


class _Connection(asyncio.Protocol):
    """One connection with at most one request at a time. The parser calls the `on_…` methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[HttpReply] | None = None
        self.is_reusable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def exchange(self, request: bytes) -> HttpReply:
        """Send a request and return its response. Raises Broken."""
        assert self._transport is not None
        self.is_reusable = False
        self._begin()
        self._answered = self._loop.create_future()
        self._transport.write(request)
        return await self._answered

    def abort(self) -> None:
        self.is_reusable, self._answered = False, None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        from httptools import HttpParserError

        if self._answered is None or self._answered.done():
            self.abort()  # nobody asked for it
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail(Broken(f"the response is not HTTP: {_words(error)}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        # Without a length an answer ends with its connection.
        if exc is None and self._has_head and not {"content-length", "transfer-encoding"} & self._headers.keys():
            self.on_message_complete()
            self.is_reusable = False
        self._fail(Broken(_words(exc) if exc else "the server closed it"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BYTES:
            self._fail(Broken(f"the response has more than {MAX_BYTES} bytes"))

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer: the real one follows
            self._begin()
        elif self._answered is not None and not self._answered.done():
            self.is_reusable = self._parser.should_keep_alive()
            self._answered.set_result(HttpReply(status, self._headers, bytes(self._body)))

    def _begin(self) -> None:
        from httptools import HttpResponseParser

        self._parser: HttpResponseParser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._has_head = False

    def _fail(self, error: Broken) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
