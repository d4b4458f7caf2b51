"""Requests without a key: one table of the expected answers for every server on this machine."""

from __future__ import annotations

import socket

import httpx

HOSTS: list[tuple[bytes | None, int]] = [
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
]
"""A `Host` header and the expected status. HTTP/1.0 needs none."""
PAGES: list[tuple[bytes, int]] = [
    (b"Origin: http://localhost:3000", 403),
    (b"Origin: null", 403),
    (b"Origin:", 403),
    (b"Sec-Fetch-Site: cross-site", 403),
    (b"Sec-Fetch-Site: same-site", 403),
    (b"Sec-Fetch-Site: same-origin", 200),
    (b"Sec-Fetch-Site: none", 200),
]
"""Headers by which browsers describe the origin of a request, and the expected status."""


def get(url: str, path: str, host: bytes | None, *others: bytes) -> tuple[int, str]:
    """Return status and body of a request whose headers are sent unchanged."""
    version, named = (b"1.0", []) if host is None else (b"1.1", [b"Host: " + host])
    head = [b"GET " + path.encode() + b" HTTP/" + version, *named, *others, b"Connection: close", b"", b""]
    place = httpx.URL(url)
    with socket.create_connection((place.host, place.port or 80), timeout=30) as connection:
        connection.sendall(b"\r\n".join(head))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    first, _, body = answer.decode().partition("\r\n\r\n")
    return int(first.split()[1]), body
