"""The background process: how it is started, and its output after a failed start.

Requests to a memory server that was found: verify that it is ours, read its health, stop it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.embedded.rendezvous import Place, Rendezvous
from hermes.errors import MemoryServerError
from hermes.files import check_room
from hermes.loopback import CHALLENGE, PROOF, is_proof

SERVER_MODULE = "hermes.cli.memory_background"

MAX_TAIL_BYTES = 2000
"""Number of bytes at the end of the output that are read."""


def start_process(place: Place) -> subprocess.Popen[bytes]:
    """Start a server of the folder, which outlives this process. Raises MemoryServerError if the folder is not
    writable."""
    _check_room(place.folder, place.start_log.parent)
    try:
        place.start_log.unlink(missing_ok=True)  # not cut short: a server that is ending may still write to it
        with os.fdopen(os.open(place.start_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as said:
            return subprocess.Popen(
                # -P: the folder where it stands is no place to import from
                [sys.executable, "-P", "-m", SERVER_MODULE, str(place.home), str(place.folder)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=place.home,
                start_new_session=os.name != "nt",
                creationflags=0x00000008 if os.name == "nt" else 0,  # DETACHED_PROCESS: without our console
            )
    except OSError as error:
        raise MemoryServerError(f"cannot start the memory server: {error}") from error


def let_run(process: subprocess.Popen[bytes]) -> None:
    """Leave the process running. If it ends first, a thread collects its exit status, so that no zombie stays."""
    threading.Thread(target=process.wait, daemon=True, name="memory-server-ended").start()


def last_words(place: Place) -> str:
    """Return the last line of output of a process that could not start."""
    try:
        said = place.start_log.read_bytes()[-MAX_TAIL_BYTES:].decode(errors="replace")
    except OSError as error:
        return f"its output cannot be read: {error.strerror}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("hermes: ") if lines else f"no output; see {place.log}"


def _check_room(*folders: Path) -> None:
    """Check that each folder exists and is writable, and that its disk has space."""
    disks: set[int] = set()
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk = folder.stat().st_dev
            if disk not in disks or not os.access(folder, os.W_OK):
                check_room(folder)
            disks.add(disk)
        except OSError as error:
            raise MemoryServerError(
                f"the memory server cannot write in {folder}: {error.strerror}",
                hint="Free some space or check its permissions, or set HERMES_MEMORY_DATA to another folder",
            ) from error


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
