"""A proxy that injects faults in front of a real Honcho server.

    request ──> fault before? ──> the real server ──> fault after? ──> reply

With `is_foreign` it hides the extensions of our server, including idempotency keys.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import httpx

from tests.plain_http import PLAIN

Fault = Literal[
    "402",
    "403",
    "404",
    "422",
    "latency",
    "500",
    "500 after",
    "429",
    "401",
    "reset",
    "reset after",
    "hang",
    "garbage",
    "garbage after",
    "odd",
    "odd after",
]
FAULTS: tuple[Fault, ...] = (
    *("latency", "500", "500 after", "429", "401"),
    *("reset", "reset after", "hang", "garbage", "garbage after", "odd", "odd after"),
)
ODD = b'{"content": 7, "summary": [], "items": "?"}'
"""Valid JSON of the wrong shape."""
CLIENT_TIMEOUT_SECONDS = 2.5
"""Seconds after which a client may have abandoned a request."""
KEY, HIDDEN = b"hermes_key", b"hidden_key"
"""Of the same length, so that nothing else changes."""
Choice = Callable[[str, str], Fault | None]
"""Chooses the fault of a request by method and path."""


def never(method: str, path: str) -> None:
    """Inject no fault."""


def on(ending: str, *faults: Fault | None) -> Choice:
    """Inject these faults, in order, into requests whose path ends with this."""
    left = iter(faults)
    return lambda _, path: next(left, None) if path.partition("?")[0].endswith(ending) else None


class AtRandom:
    """Injects faults at random, each kind equally often; never into `/health`."""

    def __init__(self, seed: int, chance: float, kinds: tuple[Fault, ...] = FAULTS) -> None:
        self._random = random.Random(seed)
        self._chance = chance
        self._kinds = kinds
        self._deck: list[Fault] = []

    def __call__(self, method: str, path: str) -> Fault | None:
        if self._random.random() >= self._chance:
            return None
        if not self._deck:
            self._deck = self._random.sample(self._kinds, len(self._kinds))
        return self._deck.pop()


class Misbehaving:
    """Injects faults, and records them in `befallen` and all requests in `asked`."""

    def __init__(self, upstream: str, *, is_foreign: bool = False) -> None:
        self.choose: Choice = never
        self.befallen: Counter[str] = Counter()
        self.asked: list[tuple[str, str]] = []
        self.url = ""
        self.rewrite: Callable[[bytes], bytes] | None = None
        """Rewrites responses of the real server."""
        self._is_foreign = is_foreign
        self._client = httpx.AsyncClient(base_url=upstream, timeout=60, verify=PLAIN)
        self._over = asyncio.Event()
        self._writing: dict[object, float] = {}
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Misbehaving]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**26)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self._over.set()
            server.close()
            for task in list(self._serving):
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await self._client.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or we are
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return False to close the connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int({k.lower(): v for k, v in headers.items()}.get("content-length", "0")))
        self.asked.append((method, path))
        fault = self.choose(method, path) if path != "/health" else None
        if fault is not None:
            self.befallen[fault] += 1
        if not await self._befall(fault, writer):
            return False
        if fault in ("402", "403", "404", "422", "500", "429", "401", "garbage", "odd"):
            return await self._refuse(fault, writer)
        status, told, date = await self._pass_on(method, path, headers, body)
        if fault == "reset after":
            return False
        if fault in ("500 after", "garbage after", "odd after"):
            return await self._refuse(fault, writer)
        if self.rewrite is not None:
            told = self.rewrite(told)
        await _reply(writer, status, told, f"Date: {date}\r\n" if date else "")
        return True

    async def _befall(self, fault: Fault | None, writer: asyncio.StreamWriter) -> bool:
        if fault == "latency":
            await asyncio.sleep(0.02)
        if fault == "hang":
            await self._over.wait()
        return fault not in ("reset", "hang") and not writer.is_closing()

    async def _refuse(self, fault: Fault, writer: asyncio.StreamWriter) -> bool:
        if fault.startswith("garbage"):
            await _reply(writer, 200, b"<html>\xff no JSON")
        elif fault.startswith("odd"):
            await _reply(writer, 200, ODD)
        else:
            await _reply(writer, int(fault[:3]), b'{"detail": "on purpose"}', "Retry-After: 1\r\n" * (fault == "429"))
        return True

    async def _pass_on(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        """Forward a request. A list request waits for older writes: for a client with a faster clock they would
        otherwise seem to take longer than any real server does."""
        now, this = asyncio.get_running_loop().time, object()
        if "/list" in path:
            while any(now() - began > CLIENT_TIMEOUT_SECONDS for began in self._writing.values()):  # noqa: ASYNC110 - seldom
                await asyncio.sleep(0.01)
            return await self._ask(method, path, headers, body)
        self._writing[this] = now()
        try:
            return await self._ask(method, path, headers, body)
        finally:
            del self._writing[this]

    async def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        kept = {name: value for name, value in headers.items() if name.lower() in ("authorization", "content-type")}
        if not self._is_foreign:
            answer = await self._client.request(method, path, content=body, headers=kept)
            return answer.status_code, answer.content, answer.headers["date"]
        if path == "/health":
            return 200, b'{"status": "ok"}', ""
        answer = await self._client.request(method, path, content=body.replace(KEY, HIDDEN), headers=kept)
        return answer.status_code, answer.content.replace(HIDDEN, KEY), answer.headers["date"]


async def _reply(writer: asyncio.StreamWriter, status: int, body: bytes, more: str = "") -> None:
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)
    await writer.drain()
