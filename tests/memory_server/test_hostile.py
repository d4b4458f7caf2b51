"""Malicious input that generated requests do not cover: bytes, numbers, names and clients."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from hermes.memory_server import limits
from tests.memory_server.serving import Served, running
from tests.plain_http import PLAIN
from tests.scale import scale

JSON = {"Content-Type": "application/json"}
VALUES: dict[str, bytes] = {
    "half a surrogate pair": b'"\\ud800"',
    "a list of it": b'["\\udfff"]',
    "a key of it": b'{"\\ud800": 1}',
    "NUL": b'"a\\u0000b"',
    "more than 64 bits": b"9223372036854775808",
    "less than 64 bits": b"-9223372036854775809",
    "more than any machine's whole numbers": b"18446744073709551616",
    "5000 digits": b"9" * 5000,
    "no number": b"NaN",
    "infinity": b"-Infinity",
    "an overflow": b"1e999",
    "a list without end": b"[" * 100_000 + b"]" * 100_000,
    "an object without end": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "some nesting": b"[" * 300 + b"]" * 300,
    "a key twice": b'{"in": ["a"], "in": 5}',
    "before all years": b'"0001-01-01T00:00:00+14:00"',
    "after all years": b'"9999-12-31T23:59:59.999999-14:00"',
    "a long text": b'"' + b"x" * 300_000 + b'"',
    "a noncharacter": '"\uffff\U0010ffff"'.encode(),
}
PLACES: dict[str, tuple[str, str, bytes]] = {
    "id": ("POST", "/peers", b'{"id": %s}'),
    "metadata": ("POST", "/peers", b'{"id": "zoe", "metadata": {"a": %s}}'),
    "configuration": ("POST", "/sessions", b'{"id": "s", "configuration": {"a": %s}}'),
    "summary": ("POST", "/sessions", b'{"id": "s", "configuration": {"summary": {"messages_per_short_summary": %s}}}'),
    "peers": ("POST", "/sessions", b'{"id": "s", "peers": {"ann": %s}}'),
    "content": ("POST", "/sessions/s/messages", b'{"messages": [{"peer_id": "ann", "content": %s}]}'),
    "peer_id": ("POST", "/sessions/s/messages", b'{"messages": [{"content": "x", "peer_id": %s}]}'),
    "created_at": (
        "POST",
        "/sessions/s/messages",
        b'{"messages": [{"peer_id": "ann", "content": "x", "created_at": %s}]}',
    ),
    "query": ("POST", "/search", b'{"query": %s}'),
    "limit": ("POST", "/search", b'{"query": "tea", "limit": %s}'),
    "filter": ("POST", "/sessions/s/messages/list", b'{"filters": {"token_count": %s}}'),
    "date": ("POST", "/sessions/s/messages/list", b'{"filters": {"created_at": {"gt": %s}}}'),
    "metadata filter": ("POST", "/peers/list", b'{"filters": {"metadata": {"a": {"gt": %s}}}}'),
    "held metadata": ("POST", "/peers/list", b'{"filters": {"metadata": {"a": %s}}}'),
    "in": ("POST", "/peers/list", b'{"filters": {"id": {"in": [%s]}}}'),
    "not": ("POST", "/peers/list", b'{"filters": {"NOT": [%s]}}'),
    "member": ("POST", "/sessions/list", b'{"filters": {"peer_id": %s}}'),
    "sources": ("POST", "/conclusions/list", b'{"filters": {"source_ids": %s}}'),
    "perspective": ("POST", "/search", b'{"query": "tea", "filters": {"peer_perspective": %s}}'),
    "conclusion": (
        "POST",
        "/conclusions",
        b'{"conclusions": [{"observer_id": "ann", "observed_id": "ann", "content": %s}]}',
    ),
    "distance": (
        "POST",
        "/conclusions/query",
        b'{"query": "tea", "filters": {"observer": "ann", "observed": "ann"}, "distance": %s}',
    ),
    "replaced metadata": ("PUT", "/peers/ann", b'{"metadata": {"a": %s}}'),
    "card": ("PUT", "/peers/ann/card", b'{"peer_card": [%s]}'),
    "question": ("POST", "/peers/ann/chat", b'{"query": "tea", "filters": {"session_id": %s}}'),
    "shape": (
        "POST",
        "/peers/ann/chat",
        b'{"query": "tea", "response_format": {"type": "object", "properties": {"a": %s}}}',
    ),
    "scope": ("POST", "/peers/ann/representation", b'{"scope": %s}'),
    "url": ("POST", "/webhooks", b'{"url": %s}'),
    "whole": ("POST", "/peers/list", b"%s"),
}


@pytest.fixture
def talk(http: httpx.Client) -> httpx.Client:
    """Create a workspace with a message, numbers and times to compare with."""
    body = {"messages": [{"content": "I like tea.", "peer_id": "ann", "metadata": {"a": 1}}]}
    http.post("/sessions/s/messages", json=body).raise_for_status()
    http.post("/peers", json={"id": "ann", "metadata": {"a": 1}}).raise_for_status()
    return http


@pytest.mark.contract("9.8")
@pytest.mark.parametrize("place", [*PLACES])
def test_no_value_anywhere_breaks_the_server_or_what_it_holds(talk: httpx.Client, place: str) -> None:
    method, path, body = PLACES[place]
    for name, value in VALUES.items():
        answer = talk.request(method, path, content=body % value, headers=JSON)
        assert answer.status_code < 500, f"{name}: {answer.text}"
        assert answer.status_code < 300 or answer.json()["detail"], name
    for path in ("/sessions/s/messages/list", "/peers/list", "/sessions/list", "/conclusions/list"):
        assert talk.post(path).status_code == 200, "what was taken cannot be shown"
    assert talk.get("/sessions/s/context?peer_target=ann").status_code == 200


@pytest.mark.contract("9.8")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\x00",
        b"\xff\xfe",
        b'{"query": "\xed\xa0\x80"}',
        b'{"query": "\xff"}',
        '{"query": "tea"}'.encode("utf-16"),
        gzip.compress(b'{"query": "tea"}', mtime=0),
        b'{"query": "tea"} trailing',
    ],
)
def test_bytes_that_are_no_json_are_refused(talk: httpx.Client, raw: bytes) -> None:
    for headers in (JSON, {**JSON, "Content-Encoding": "gzip"}, {"Content-Type": "application/json; charset=utf-16"}):
        answer = talk.post("/search", content=raw, headers=headers)
        assert answer.status_code in (200, 400, 422), answer.text
        assert raw.startswith(b"\xff\xfe{") or answer.status_code != 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "image/png", "/", ";;;=", "a/b;q"],
)
def test_body_of_another_kind_is_refused_or_understood(talk: httpx.Client, kind: str) -> None:
    answer = talk.post("/search", content=b'{"query": "tea"}', headers={"Content-Type": kind})
    assert answer.status_code in (200, 400, 415, 422), answer.text


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**22 + 1])
@pytest.mark.parametrize("place", ["metadata", "replaced metadata"])
def test_a_whole_number_that_could_not_be_kept_as_it_is_is_refused(talk: httpx.Client, place: str, number: int) -> None:
    method, path, body = PLACES[place]
    answer = talk.request(method, path, content=body % str(number).encode(), headers=JSON)
    assert answer.status_code == 422, answer.text


@pytest.mark.contract("9.8")
@pytest.mark.processes
@pytest.mark.parametrize("path", ["/search", "/peers/ann/representation", "/conclusions/query", "/peers"])
def test_client_that_disconnects_during_its_request_causes_no_error(tmp_path: Path, path: str) -> None:
    with running(tmp_path) as served:
        host, port = served.url.removeprefix("http://").split(":")
        head = f"POST /v3/workspaces/w{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        for _ in range(3):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(f'{head}Content-Length: 100\r\n\r\n{{"query":'.encode())
                time.sleep(0.1)  # it is being read
        with served.client() as client:
            assert client.get("/health").status_code == 200


NAMES = [
    "a%20b",
    "%00",
    "%ff",
    "%ed%a0%80",
    "..%2f..",
    "a%2Fb",
    "%F0%9F%98%80",
    "a%0Ab",
    "x" * 513,
    "*",
    "%7Bx%7D",
    "%",
]


@pytest.mark.contract("9.8")
@pytest.mark.parametrize("name", NAMES)
def test_nothing_gets_a_name_that_it_cannot_have(server: Served, talk: httpx.Client, name: str) -> None:
    says = {"messages": [{"content": "x", "peer_id": "ann"}]}
    with server.client() as outside:
        before = outside.post("/v3/workspaces/list").json()["total"]
        asked = [
            talk.put(f"/peers/{name}", json={}),
            talk.put(f"/peers/{name}/card", json={"peer_card": ["x"]}),
            talk.post(f"/peers/{name}/chat", json={"query": "tea"}),
            talk.put(f"/sessions/{name}", json={}),
            talk.post(f"/sessions/{name}/peers", json={"ann": {}}),
            talk.post(f"/sessions/{name}/messages", json=says),
            outside.put(f"/v3/workspaces/{name}", json={}),
            outside.post(f"/v3/workspaces/{name}/peers", json={"id": "ann"}),
            outside.post(f"/v3/workspaces/{name}/sessions", json={"id": "s"}),
            outside.post(f"/v3/workspaces/{name}/sessions/s/messages", json=says),
            outside.post(f"/v3/workspaces/{name}/scopes", json={"id": "s"}),
            outside.post(f"/v3/workspaces/{name}/webhooks", json={"url": "https://example.org"}),
        ]
        assert {answer.status_code for answer in asked} <= {404, 405, 422}
        assert outside.post("/v3/workspaces/list").json()["total"] == before
    assert talk.post("/peers/list").json()["total"] == 1
    assert talk.post("/sessions/list").json()["total"] == 1


def connect(server: Served) -> socket.socket:
    place = urlsplit(server.url)
    return socket.create_connection((place.hostname, place.port), timeout=30)


@pytest.mark.parametrize(
    "header",
    [b"Authorization: Bearer \xff\xfe", b"X-Big: " + b"x" * 50_000, b"X-Honcho-Host: \x80", b"Content-Type: \xff/\xfe"],
)
def test_odd_header_is_no_error(server: Served, header: bytes) -> None:
    for wanted in (b"GET /health", b"POST /v3/workspaces/list"):
        with connect(server) as wire:
            wire.sendall(wanted + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + header + b"\r\n\r\n")
            assert wire.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 400")


def test_endless_body_is_refused_before_it_is_read(server: Served) -> None:
    head = b"POST /v3/workspaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connect(server) as wire:
        wire.sendall(head + b"Content-Length: 100000000000\r\n\r\n")
        assert wire.recv(12) == b"HTTP/1.1 413"

    def endless() -> Iterator[bytes]:
        for _ in range(limits.SMALL_REQUEST_BYTES // 1_000_000 + 100):
            yield b"x" * 1_000_000

    with server.client() as client:
        told = client.post("/v3/workspaces", content=endless(), headers={"Content-Type": "application/json"})
        assert told.status_code == 413
        assert str(limits.SMALL_REQUEST_BYTES) in told.json()["detail"]
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("body", [b"", b'{"id": "w', b"{}"])
def test_client_that_goes_away_before_its_body_is_sent_is_no_error(server: Served, body: bytes) -> None:
    head = b"POST /v3/workspaces HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n"
    with connect(server) as wire:
        wire.sendall(head + body)
    with server.client() as client:
        assert client.get("/health").status_code == 200


def test_listener_that_goes_away_in_the_middle_of_an_answer_is_no_error(server: Served, talk: httpx.Client) -> None:
    says = [{"content": f"I like tea number {n} very much. " * 20, "peer_id": "ann"} for n in range(30)]
    talk.post("/sessions/s/messages", json={"messages": says}).raise_for_status()
    for _ in range(5):
        with talk.stream("POST", "/peers/ann/chat", json={"query": "tea", "stream": True}) as answer:
            next(answer.iter_raw(16))
    whole = talk.post("/peers/ann/chat", json={"query": "tea", "stream": True}).text
    assert whole.endswith('data: {"done":true}\n\n')


def test_question_about_a_thousand_sessions_is_answered(talk: httpx.Client) -> None:
    names = ["s", *(f"s{number}" for number in range(999))]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: talk.post("/sessions", json={"id": name}).raise_for_status(), names))
    asked: dict[str, Any] = {"query": "tea", "filters": {"session_id": names}}
    assert "tea" in talk.post("/peers/ann/chat", json=asked).json()["content"]
    talk.post("/scopes", json={"id": "all"}).raise_for_status()
    for start in range(0, 1000, 100):
        given = {"session_ids": names[start : start + 100]}
        talk.post("/scopes/all/sessions", json=given).raise_for_status()
    assert talk.post("/search", json={"query": "tea", "scope": "all"}).json()[0]["content"] == "I like tea."
    assert talk.post("/search", json={"query": "te", "scope": "all"}).json()[0]["content"] == "I like tea."


@pytest.mark.stress
def test_more_members_than_a_statement_has_room_for_can_join_and_leave(talk: httpx.Client) -> None:
    names = [f"p{number}" for number in range(limits.MAX_MEMBERS)]
    assert talk.post("/sessions/s/peers", json={name: {} for name in names}).status_code == 200
    assert talk.get("/sessions/s/peers?size=1").json()["total"] == len(names) + 1
    assert talk.request("DELETE", "/sessions/s/peers", json=names).status_code == 200
    assert talk.get("/sessions/s/peers?size=1").json()["total"] == 1


@pytest.mark.stress
@pytest.mark.contract("9.8")
def test_deletion_in_the_middle_of_writing_is_no_error(http: httpx.Client) -> None:
    """Delete everything repeatedly while others write and read: requests may be refused, but must not fail."""
    stop = threading.Event()
    seen: set[int] = set()

    def write(number: int) -> None:
        with httpx.Client(base_url=http.base_url, timeout=60, verify=PLAIN) as client:
            for turn in range(scale(10, 500)):
                says = {"messages": [{"content": f"I own {turn}.", "peer_id": f"p{number}"}]}
                seen.add(client.post("/sessions/s/messages", json=says).status_code)
                seen.add(client.post("/search", json={"query": "own"}).status_code)
                seen.add(client.get("/sessions/s/context?peer_target=p0").status_code)
                seen.add(client.post(f"/peers/p{number}/representation", json={}).status_code)
                seen.add(client.post("/scopes", json={"id": "x"}).status_code)
                seen.add(client.post("/scopes/x/sessions", json={"session_ids": ["s"]}).status_code)
                seen.add(client.post("/sessions/s/clone").status_code)

    def delete() -> None:
        with httpx.Client(base_url=http.base_url, timeout=60, verify=PLAIN) as client:
            while 202 not in seen or not stop.is_set():
                for session in client.post("/sessions/list").json().get("items", []):
                    seen.add(client.delete(f"/sessions/{session['id']}").status_code)
                seen.add(client.delete(str(http.base_url).rstrip("/")).status_code)

    deleter = threading.Thread(target=delete)
    deleter.start()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    stop.set()
    deleter.join()
    assert max(seen) < 500
    assert {201, 202} <= seen
