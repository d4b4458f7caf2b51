"""Keys are checked before bodies are read; requests have the same result with and without FastAPI."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.memory_server.serving import Served

SHORT, LONG = "application/json", "application/json; charset=utf-8"
"""Content types of requests that are handled directly, and through FastAPI."""
BODIES: dict[str, bytes] = {
    "right": b'{"query": "tea", "limit": 5}',
    "missing field": b'{"limit": 5}',
    "wrong kind": b'{"query": "tea", "limit": "many"}',
    "misspelt field": b'{"query": "tea", "limt": 5}',
    "no JSON": b'{"query": ',
    "nothing": b"",
    "no object": b"[1, 2]",
    "huge number": b'{"query": "tea", "limit": 99999999999999999999999999}',
    "deep": b"[" * 5000 + b"]" * 5000,
}


@pytest.mark.processes
@pytest.mark.parametrize("name", [*BODIES])
def test_body_is_answered_alike_on_both_ways(http: httpx.Client, name: str) -> None:
    short, long = (http.post("search", content=BODIES[name], headers={"content-type": kind}) for kind in (SHORT, LONG))
    assert (short.status_code, short.json()) == (long.status_code, long.json())
    assert short.is_success == (name == "right")


@pytest.mark.processes
@pytest.mark.parametrize("path", ["sessions//search", "peers//search", "search/", "//search", "sessions/a/b/search"])
def test_path_that_is_no_route_leads_nowhere(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json={"query": "tea"})
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


@pytest.mark.processes
def test_method_that_a_path_does_not_have_is_refused(http: httpx.Client) -> None:
    assert http.put("search", json={"query": "tea"}).status_code == 405


@pytest.mark.processes
def test_key_of_a_request_is_looked_at(http: httpx.Client) -> None:
    """The idempotency key is in a header that most requests lack."""
    said: dict[str, Any] = {"messages": [{"content": "I like tea.", "peer_id": "anna"}]}
    first, again = (http.post("sessions/s/messages", json=said, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == again.json()
    assert http.post("sessions/s/messages", json=said).json() != first.json()
    assert http.post("sessions/s/messages", json=said, headers={"Idempotency-Key": ""}).status_code == 422


@pytest.mark.contract("9.17")
@pytest.mark.parametrize("path", ["/sessions/s/messages", "/search", "/sessions/s/messages/upload", "/peers/list"])
def test_key_is_refused_before_any_byte_of_the_body_has_come(guarded: Served, path: str) -> None:
    place = urlsplit(guarded.url)
    head = f"POST /v3/workspaces/w{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=60) as client:
        client.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 401"


@pytest.mark.processes
def test_large_body_that_is_no_json_is_refused_as_a_small_one_is(http: httpx.Client) -> None:
    answers = [http.post("search", content=b"{" + b" " * size, headers={"content-type": SHORT}) for size in (1, 70_000)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert {problem["type"] for answer in answers for problem in answer.json()["detail"]} == {"json_invalid"}
