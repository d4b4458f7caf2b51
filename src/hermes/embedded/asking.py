"""Requests to a server that was found: to prove that it is ours, to say how it is, to end."""

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

SECONDS = 3.0
"""How long a server has for one of these answers."""
LARGEST = 64 * 1024
Presence = Literal["ours", "nobody", "stranger", "silent"]
"""Who is at an address: the server that wrote the rendezvous file, nobody, another program, or one that does not
answer."""


def look(found: Rendezvous) -> tuple[Presence, Mapping[str, Any]]:
    """Who is at the address, and what `/health` says when it is the server that wrote the rendezvous. No secret is
    sent: another program may have the port by now."""
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
    """Let the server, which has proved itself, note that it is still needed."""
    _ask_with_key(found, "GET", "/health")


def ask_to_end(found: Rendezvous) -> bool:
    """Whether the server, which has proved itself, agreed to finish what it is doing and end."""
    return _ask_with_key(found, "POST", "/stop") == 202


def _ask_with_key(found: Rendezvous, method: str, path: str) -> int | None:
    """The status of the answer; None when there is none."""
    try:
        answer, _ = _ask(found.url, method, path, {"Authorization": f"Bearer {found.api_key}"})
    except (OSError, HTTPException, ValueError):
        return None
    return answer.status


def _ask(url: str, method: str, path: str, headers: Mapping[str, str]) -> tuple[HTTPResponse, Mapping[str, Any]]:
    """One question over a connection of its own, past any proxy."""
    address = urlsplit(url)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.netloc}", "Connection: close", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    end = time.monotonic() + SECONDS
    with socket.create_connection((address.hostname or "", address.port or 80), timeout=SECONDS) as connection:
        connection.sendall("\r\n".join([*lines, "\r\n"]).encode("ascii"))
        answer = HTTPResponse(_Received(_read_all(connection, end)))  # type: ignore[arg-type]
    answer.begin()
    body = json.loads(answer.read() or b"{}")
    return answer, body if isinstance(body, dict) else {}


def _read_all(connection: socket.socket, end: float) -> bytes:
    """Read until the other side closes the connection or sends too much. Raises TimeoutError when it takes too long."""
    received = b""
    while len(received) <= LARGEST:
        if (left := end - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (part := connection.recv(LARGEST)):
            return received
        received += part
    raise ValueError("the answer is too long")


class _Received(Struct, frozen=True):
    """What was received, in the place of a socket."""

    raw: bytes

    def makefile(self, _mode: str) -> BytesIO:
        return BytesIO(self.raw)
