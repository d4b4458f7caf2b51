"""Requests to a memory server that was found: verify that it is ours, read its health, stop it."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.embedded.rendezvous import Rendezvous
from hermes.loopback import CHALLENGE, PROOF, is_proof

RESPONSE_TIMEOUT_SECONDS = 3.0
"""Time limit for one of these responses."""
MAX_RESPONSE_BYTES = 64 * 1024
Presence = Literal["ours", "nobody", "stranger", "silent"]
"""Identity of the program at an address: the server that wrote the rendezvous file, nobody, another program, or one
that does not respond."""


def look(found: Rendezvous) -> tuple[Presence, Mapping[str, Any]]:
    """Return the identity of the program at the address, and the `/health` response of the server that wrote the
    rendezvous. No secret is sent, since another program may have the port by now."""
    challenge = secrets.token_hex(16)
    try:
        answer, body = _ask(found.url, "GET", "/health", {CHALLENGE: challenge})
    except TimeoutError:
        return "silent", {}
    except OSError:
        return "nobody", {}
    except (HTTPException, ValueError):
        return "stranger", {}
    proven = is_proof(answer.getheader(PROOF, ""), found.start_id, challenge)
    return ("ours", body) if proven else ("stranger", {})


def show_key(found: Rendezvous) -> None:
    """Show the server, whose identity is verified, that it is still needed."""
    _ask_with_key(found, "GET", "/health")


def ask_to_end(found: Rendezvous) -> bool:
    """Return True if the server, whose identity is verified, agreed to finish its work and end."""
    return _ask_with_key(found, "POST", "/stop") == 202


def _ask_with_key(found: Rendezvous, method: str, path: str) -> int | None:
    """Return the status of the response, or None without one."""
    try:
        answer, _ = _ask(found.url, method, path, {"Authorization": f"Bearer {found.api_key}"})
    except (OSError, HTTPException, ValueError):
        return None
    return answer.status


def _ask(url: str, method: str, path: str, headers: Mapping[str, str]) -> tuple[HTTPResponse, Mapping[str, Any]]:
    """Send one request over a new connection, bypassing any proxy."""
    address = urlsplit(url)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.netloc}", "Connection: close", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    end = time.monotonic() + RESPONSE_TIMEOUT_SECONDS
    with socket.create_connection(
        (address.hostname or "", address.port or 80), timeout=RESPONSE_TIMEOUT_SECONDS
    ) as connection:
        connection.sendall("\r\n".join([*lines, "\r\n"]).encode("ascii"))
        answer = HTTPResponse(_Received(_read_all(connection, end)))  # type: ignore[arg-type]
    answer.begin()
    body = json.loads(answer.read() or b"{}")
    return answer, body if isinstance(body, dict) else {}


def _read_all(connection: socket.socket, end: float) -> bytes:
    """Read until the other side closes the connection or sends too much. Raises TimeoutError when it takes too long."""
    received = b""
    while len(received) <= MAX_RESPONSE_BYTES:
        if (left := end - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (part := connection.recv(MAX_RESPONSE_BYTES)):
            return received
        received += part
    raise ValueError("the answer is too long")


class _Received(Struct, frozen=True):
    """Received bytes in the place of a socket."""

    raw: bytes

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self.raw)
