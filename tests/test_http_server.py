"""The HTTP server as a guest: it ignores signals, and ends after running requests."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from hermes.errors import UsageError
from hermes.http_server import GuestServer, listen

HANG = 20
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Slow:
    """An application that responds when the test lets it."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: object, send: Send) -> None:
        self.begun.set()
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


async def ask(listener: socket.socket) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=HANG) as client:
        return await client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")


@pytest.mark.parametrize("how", ["told", "cancelled"])
async def test_running_requests_finish_before_the_server_ends(how: str) -> None:
    app, handlers = Slow(), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with listen("127.0.0.1", 0, "") as listener:
        asking = asyncio.create_task(ask(listener))  # before anyone serves: it waits
        server = GuestServer(app, drain=HANG)
        serving = asyncio.create_task(server.serve_on(listener))
        async with asyncio.timeout(HANG):
            await app.begun.wait()
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
            if how == "told":
                server.end()
            else:
                serving.cancel()
            await asyncio.wait({serving}, timeout=0.2)
            assert not serving.done()
            app.go.set()
            assert (await asking).text == "done"
            await asyncio.wait({serving})
    assert serving.cancelled() == (how == "cancelled")


async def test_response_past_the_deadline_does_not_delay_the_end() -> None:
    app = Slow()
    with listen("127.0.0.1", 0, "") as listener:
        server = GuestServer(app, drain=1)
        serving = asyncio.create_task(server.serve_on(listener))
        asking = asyncio.create_task(ask(listener))
        async with asyncio.timeout(HANG):
            await app.begun.wait()
            server.end()
            await serving
            await asyncio.wait({asking})
    answer = asking.exception() or asking.result().status_code
    assert answer == 500 or isinstance(answer, httpx.RemoteProtocolError)


def test_pieces_of_a_response_are_sent_without_delay() -> None:
    with listen("127.0.0.1", 0, "") as listener, socket.create_connection(listener.getsockname(), timeout=HANG):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_taken_port_is_reported_with_advice() -> None:
    with listen("127.0.0.1", 0, "") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: [^(]+; choose another port$"):
            listen("127.0.0.1", port, "choose another port")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_any_address_means_ipv4_and_ipv6() -> None:
    with listen("::", 0, "") as listener:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, listener.getsockname()[1]), timeout=HANG) as caller:
                accepted, address = listener.accept()
                with accepted:
                    assert address[1] == caller.getsockname()[1]
