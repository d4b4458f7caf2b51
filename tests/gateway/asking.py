"""Requests to the HTTP API."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping

import httpx

from hermes.types import Json
from tests.gateway.processes import wait_until
from tests.plain_http import PLAIN


def body(text: str, **more: Json) -> dict[str, Json]:
    """Return a request with one user message."""
    return {"model": "hermes", "messages": [{"role": "user", "content": text}], **more}


def ask(url: str, text: str, *, headers: Mapping[str, str] | None = None, **more: Json) -> httpx.Response:
    """Send one request and return the whole response."""
    return httpx.post(f"{url}/chat/completions", json=body(text, **more), headers=headers, timeout=120.0, verify=PLAIN)


async def ask_async(
    client: httpx.AsyncClient, url: str, text: str, *, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Send one request asynchronously."""
    return await client.post(f"{url}/chat/completions", json=body(text), headers=headers, timeout=120.0)


def leave(url: str, text: str, until: Callable[[], object], *, headers: Mapping[str, str], **more: Json) -> None:
    """Send one request and disconnect when `until()` is true. Returns when the server has noticed."""
    content = json.dumps(body(text, **more)).encode()
    named = {"Host": "localhost", "Content-Length": str(len(content)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    place = httpx.URL(url)
    with socket.create_connection((place.host, place.port or 80), timeout=60) as connection:
        connection.sendall(f"POST {place.path}/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + content)
        wait_until(until)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def reply(response: httpx.Response) -> str:
    """Return the text of a successful response."""
    assert response.status_code == 200, response.text
    text = response.json()["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def in_session(session_id: str, key: str | None = None) -> dict[str, str]:
    """Return the headers of a request in a session."""
    return {"X-Hermes-Session-Id": session_id, **({"Idempotency-Key": key} if key else {})}


def chunks(text: str) -> list[Json]:
    """Return the events of a stream; the last is "[DONE]" if it ended well."""
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def streamed_text(events: list[Json]) -> str:
    """Return the joined text of a stream's chunks."""
    return "".join(
        event["choices"][0]["delta"].get("content") or "" for event in events if event != "[DONE]" and event["choices"]
    )
