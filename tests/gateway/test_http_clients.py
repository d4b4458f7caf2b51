"""Misbehaving clients: none of them blocks the gateway."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import httpx
import pytest

from tests.gateway.asking import ask, body, reply
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, write_config
from tests.plain_http import PLAIN

pytestmark = pytest.mark.contract("10.2")


@pytest.fixture(scope="module")
def hasty(model: LoopbackModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with timeouts of two seconds."""
    home = tmp_path_factory.mktemp("hasty") / "home"
    write_config(home, api_settings(model, api__timeout=2.0))
    with GatewayProcess(home) as running:
        yield running


def connect(gateway: GatewayProcess) -> socket.socket:
    place = urlsplit(gateway.url)
    assert place.port is not None
    return socket.create_connection((place.hostname, place.port), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Return all bytes until the server disconnects; a timeout fails the test."""
    found = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return found
        if not piece:
            return found
        found += piece


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/chat/completions HTTP/1.1\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nA: b"],
)
def test_client_that_sends_no_head_is_disconnected(hasty: GatewayProcess, sent: bytes) -> None:
    with closing(connect(hasty)) as connection:
        connection.sendall(sent)
        assert read_all(connection) == b""


def test_client_with_a_slow_second_head_is_disconnected(hasty: GatewayProcess) -> None:
    with closing(connect(hasty)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while not found.endswith(b"}"):
            found += (piece := connection.recv(65536))
            assert piece
        assert b"200 OK" in found
        connection.sendall(b"GET /health HTTP/1.1\r\nHost")
        assert read_all(connection) == b""


def test_client_with_a_slow_body_gets_an_error(hasty: GatewayProcess) -> None:
    with closing(connect(hasty)) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in read_all(connection)


def test_invalid_http_gets_400(gateway: GatewayProcess) -> None:
    with closing(connect(gateway)) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b" 400 " in read_all(connection)


def test_connection_above_the_limit_gets_503_until_another_closes(gateway: GatewayProcess) -> None:
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(closing(connect(gateway)))
        with closing(connect(gateway)) as connection:
            answer = read_all(connection)
        assert b" 503 " in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "overloaded"
    until = time.monotonic() + 60
    while httpx.get(gateway.url.replace("/v1", "/health"), timeout=60, verify=PLAIN).status_code != 200:
        assert time.monotonic() < until
    assert reply(ask(gateway.url, "hi")) == "echo: hi"


def test_client_that_reads_nothing_is_disconnected(hasty: GatewayProcess) -> None:
    """The reply is larger than the buffers of sockets; the server times out and disconnects."""
    large = json.dumps(body("x" * 9_000_000)).encode()
    with closing(connect(hasty)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(large)}\r\n\r\n"
        connection.sendall(head.encode() + large)
        # Whether it was let go shows without reading: writing to a connection that is gone fails.
        assert _is_let_go(connection)
    assert reply(ask(hasty.url, "hi")) == "echo: hi"


def _is_let_go(connection: socket.socket) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            connection.sendall(b" ")
        except (BrokenPipeError, ConnectionResetError):
            return True
        time.sleep(0.1)
    return False
