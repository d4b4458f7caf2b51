"""Which `Host` the API answers without a key: a web page whose name was turned to this machine gets nothing."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from tests.gateway.processes import GatewayProcess

pytestmark = pytest.mark.contract("10.2")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1", 200),
        (b"127.0.0.1:8642", 200),
        (b"127.8.9.1:1", 200),
        (b"localhost", 200),
        (b"LocalHost:8642", 200),
        (b"[::1]", 200),
        (b"[::1]:8642", 200),
        (b"evil.example", 403),
        (b"evil.example:8642", 403),
        (b"127.0.0.1.evil.example", 403),
        (b"localhost.evil.example", 403),
        (b"localhost@evil.example", 403),
        (b"evil.example@localhost", 403),
        (b"user:pass@127.0.0.1:8642", 403),
        (b"127.0.0.1/evil.example", 403),
        (b"127.0.0.1#evil.example", 403),
        (b"127.0.0.1?evil.example", 403),
        (b"127.0.0.1\\evil.example", 403),
        (b"http://127.0.0.1", 403),
        (b"127.0.0.1:8642:1", 403),
        (b"127.0.0.1:x", 403),
        (b"127.0.0.1:", 403),
        (b"127.0.0.1 evil.example", 403),
        (b"127.0.0.1, evil.example", 403),
        (b"0.0.0.0", 403),
        (b"[::]", 403),
        (b"[::1", 403),
        (b"::1", 403),
        (b"[::1]evil.example", 403),
        (b"[127.0.0.1", 403),
        (b"]127.0.0.1[", 403),
        (b"%6cocalhost", 403),
        (b"lo\xc3\xa7alhost", 403),
        (b"!#$%", 403),
        (b"", 403),
        (None, 403),
    ],
)
def test_without_a_key_only_a_host_that_names_this_machine_is_answered(
    gateway: GatewayProcess, host: bytes | None, status: int
) -> None:
    """A page whose name was turned to 127.0.0.1 must not read what we say. HTTP/1.0 needs no Host."""
    version, head = (b"1.0", b"") if host is None else (b"1.1", b"Host: " + host + b"\r\n")
    answer = exchange(gateway.url, b"GET /v1/models HTTP/" + version + b"\r\n" + head + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    if status == 403:
        assert "`Host`" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_two_hosts_are_one_too_many(gateway: GatewayProcess) -> None:
    head = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert exchange(gateway.url, head).startswith(b"HTTP/1.1 400 ")


def exchange(url: str, request: bytes) -> bytes:
    """What comes back for bytes as they are."""
    place = httpx.URL(url)
    with socket.create_connection((place.host, place.port or 80), timeout=30) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))
