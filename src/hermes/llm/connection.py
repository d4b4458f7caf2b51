"""HTTP connections to one endpoint. Only this module uses httpx; every error leaves it as a ModelFault.

Timeouts and retries for calls to an endpoint. An endpoint's Retry-After is obeyed, within limits.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct

from hermes.errors import SettingsError
from hermes.llm.events import ModelFailed
from hermes.llm.failures import RETRIED_KINDS, ModelFault, from_transport
from hermes.llm.model import Endpoint

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")


class Timeouts(Struct, frozen=True):
    """Limits in seconds for connecting, for the first byte of the response, between two chunks (`idle`), between two
    parts of the reply whatever else is sent (`silence`), and in total."""

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    silence: float = 300.0
    total: float = 1800.0
    named: str = " (`model.timeout`)"
    """The setting that `first_byte` and `idle` come from, for the end of an error message."""

    def __post_init__(self) -> None:
        for name in ("connect", "first_byte", "idle", "silence", "total"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"the timeout `{name}` must be more than 0 seconds")


class BudgetExceeded(Exception):
    """A wait took longer than `seconds`. `is_total` means that the budget of all waits was used up."""

    def __init__(self, seconds: float, *, is_total: bool) -> None:
        super().__init__(f"waited {seconds:g} s")
        self.seconds = seconds
        self.is_total = is_total


class TimeBudget:
    """A time budget for several waits. Only waiting counts, not the time in which the caller is busy."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._left = total

    @property
    def spent(self) -> float:
        return self._total - self._left

    async def wait(self, awaitable: Awaitable[T], limit: float) -> T:
        """Return the result of `awaitable`. Raises BudgetExceeded after `limit` seconds, or when the total is used
        up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        timeout = asyncio.timeout(max(0.0, min(limit, self._left)))
        try:
            async with timeout:
                return await awaitable
        except TimeoutError as error:
            if not timeout.expired():
                raise
            is_total = limit > self._left
            raise BudgetExceeded(self._total if is_total else limit, is_total=is_total) from error
        finally:
            self._left -= loop.time() - began


class Retries(Struct, frozen=True):
    """Up to `max_retries` retries after exponentially growing waits, none longer than `max_wait_seconds`."""

    max_retries: int = 3
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 60.0

    def wait_after(self, attempt: int, failed: ModelFailed, chance: Callable[[], float]) -> float | None:
        """Return the seconds until the next attempt, or None to give up. An endpoint that asks for a longer wait means
        giving up."""
        if attempt > self.max_retries or failed.kind not in RETRIED_KINDS:
            return None
        doubled = min(self.max_wait_seconds, self.first_wait_seconds * 2.0 ** min(attempt - 1, 30))
        wait = max(doubled * (1.0 - 0.5 * chance()), failed.retry_after or 0.0)
        return wait if wait <= self.max_wait_seconds else None


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait that the endpoint asks for (milliseconds, seconds or a date) in seconds; None if it asks for
    none."""
    seconds = _number(headers.get("retry-after-ms"))
    if seconds is not None:
        return seconds / 1000
    raw = headers.get("retry-after")
    seconds = _number(raw)
    return seconds if seconds is not None or raw is None else _until(raw, now)


def _number(raw: str | None) -> float | None:
    try:
        seconds = float(raw or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _until(raw: str, now: float) -> float | None:
    try:
        date = parsedate_to_datetime(raw)
    except ValueError:
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)


# Without this, httpx imports its command line and rich: a third of its import time, while a person waits.
sys.modules.setdefault("httpx._main", cast(ModuleType, None))

# The openai package takes 0.5 s and more to import, at every `hermes chat -q`. The protocol is small.


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
