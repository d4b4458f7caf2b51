"""A bound for every text, list and body, and for what is answered when one is broken."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from hermes.http_server import GuestServer
from hermes.memory_server import limits
from hermes.memory_server.api import intake as intake_module
from hermes.memory_server.api.connection import PatientConnection
from hermes.memory_server.api.intake import LARGE_BODY, BodyIntake
from hermes.memory_server.api.wire import JsonResponse
from tests.memory_server.floor import embed

LONG = "x" * (limits.SEARCH_CHARS + 1)
PAIR = {"observer": "ann", "observed": "ann"}
QUERIES: list[tuple[str, str, Any]] = [
    ("POST", "/search", {"query": LONG}),
    ("POST", "/sessions/s/search", {"query": LONG}),
    ("POST", "/peers/ann/search", {"query": LONG}),
    ("POST", "/conclusions/query", {"query": LONG, "filters": PAIR}),
    ("POST", "/peers/ann/representation", {"search_query": LONG}),
    ("GET", f"/peers/ann/context?search_query={LONG}", None),
    ("GET", f"/sessions/s/context?peer_target=ann&search_query={LONG}", None),
]
QUESTIONS: list[tuple[str, str, Any]] = [
    ("POST", path, {"query": "x" * (limits.QUERY_CHARS + 1)}) for path in ("/peers/ann/chat", "/chat")
]
TOO_MUCH: list[tuple[str, str, Any]] = [
    ("PUT", "/peers/ann/card", {"peer_card": ["x"] * (limits.CARD_LINES + 1)}),
    ("PUT", "/peers/ann/card", {"peer_card": ["x" * (limits.TEXT_CHARS + 1)]}),
    ("PUT", "/peers/ann", {"metadata": {"a": "x" * limits.METADATA_CHARS}}),
    ("PUT", "/sessions/s", {"configuration": {"mine": "x" * limits.CONFIGURATION_CHARS}}),
    ("PUT", "/sessions/s", {"configuration": {"custom_instructions": "x" * (limits.INSTRUCTION_CHARS + 1)}}),
    ("POST", "/sessions/s/peers", {f"p{n}": {} for n in range(limits.MEMBERS + 1)}),
    ("PUT", "/sessions/s/peers", {f"p{n}": {} for n in range(limits.MEMBERS + 1)}),
    ("POST", "/sessions", {"id": "s", "peers": {f"p{n}": {} for n in range(limits.MEMBERS + 1)}}),
    ("DELETE", "/sessions/s/peers", ["x"] * (limits.MEMBERS + 1)),
]


@pytest.mark.contract("9.8")
@pytest.mark.parametrize(("method", "path", "body"), QUERIES)
def test_query_of_25000_characters_is_taken_and_its_first_10000_are_searched_for(
    http: httpx.Client, method: str, path: str, body: Any
) -> None:
    said = [{"content": text, "peer_id": "ann"} for text in ("I keep a zebra.", "I keep a walrus.")]
    http.post("/sessions/s/messages", json={"messages": said}).raise_for_status()
    conclusions = [{**said[n], "observer_id": "ann", "observed_id": "ann"} for n in range(2)]
    http.post("/conclusions", json={"conclusions": conclusions}).raise_for_status()

    def ask(text: str) -> Any:
        asked = body and {key: text if value == LONG else value for key, value in body.items()}
        answer = http.request(method, path.replace(LONG, text), json=asked)
        assert answer.status_code == 200, answer.text[:500]
        return answer.json()

    first = "zebra " + "x" * (limits.TEXT_CHARS - 6)
    found = ask(first)
    assert "zebra" in str(found)
    assert ask(f"{first} {'walrus ' * 2000}"[: limits.SEARCH_CHARS]) == found


@pytest.mark.parametrize(("method", "path", "body"), [*QUERIES, *QUESTIONS])
def test_query_beyond_its_bound_is_refused(http: httpx.Client, method: str, path: str, body: Any) -> None:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 2000, "it is not sent back"


def test_text_without_spaces_takes_the_embedder_little_memory() -> None:
    embed("ready")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert embed("x7k" * 60_000).any()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 80_000, f"{grown} KB for 180 KB"


@pytest.mark.parametrize(("method", "path", "body"), TOO_MUCH)
def test_text_or_list_beyond_its_bound_is_refused(http: httpx.Client, method: str, path: str, body: Any) -> None:
    http.post("/sessions", json={"id": "s"}).raise_for_status()
    answer = http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text[:300]
    assert len(answer.content) < 5000


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/sessions/s/peers", list(range(limits.MEMBERS))),
        ("POST", "/sessions/s/peers", {f"a b{n}": n for n in range(limits.MEMBERS)}),
        ("POST", "/sessions/s/messages", {"messages": [{"content": 5}] * 5000}),
        ("POST", "/conclusions", {"conclusions": [{}] * 100_000}),
    ],
)
def test_thousand_problems_of_a_request_are_told_in_a_short_answer(
    http: httpx.Client, method: str, path: str, body: Any
) -> None:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 422
    assert 1 <= len(answer.json()["detail"]) <= limits.PROBLEMS
    assert len(answer.content) < 20_000


def test_list_of_more_than_can_be_members_is_refused_before_it_is_read(http: httpx.Client) -> None:
    for method, body in (("DELETE", list(range(200_000))), ("POST", {f"p{n}": {} for n in range(100_000)})):
        answer = http.request(method, "/sessions/s/peers", json=body)
        assert answer.status_code == 413
        assert answer.json() == {"detail": f"The request names more than {limits.MEMBERS} members"}


@pytest.mark.contract("9.8")
def test_hundred_long_conclusions_are_counted_and_embedded_off_the_loop(http: httpx.Client) -> None:
    """They are stored as ever; that the loop is free meanwhile is measured in `bench`."""
    http.post("/peers", json={"id": "ann"}).raise_for_status()
    given = [{"content": f"{n} " + "word " * 1600, "observer_id": "ann", "observed_id": "ann"} for n in range(100)]
    answer = http.post("/conclusions", json={"conclusions": given})
    assert answer.status_code == 201
    assert [row["content"][:3] for row in answer.json()] == [f"{n} wor"[:3] for n in range(100)]


class Body:
    """A request whose body comes piece by piece, as the test says."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []

    def send_piece(self, piece: bytes, *, last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": not last})

    def leave(self) -> None:
        self._pieces.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> Message:
        return await self._pieces.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


SCOPE: Scope = {"type": "http", "path": "/v3/workspaces/w/sessions/s/messages", "headers": []}


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await JsonResponse({})(scope, receive, send)


async def test_requests_hold_a_bounded_memory_together_and_the_last_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REQUESTS_BYTES", 100)
    intake = BodyIntake(read_all)
    first, second, third = Body(), Body(), Body()
    first.send_piece(b"x" * 80)
    holding = asyncio.create_task(intake(SCOPE, first.receive, first.send))
    await asyncio.sleep(0)
    second.send_piece(b"x" * 80, last=True)
    with pytest.raises(Exception, match="429"):
        await intake(SCOPE, second.receive, second.send)
    first.send_piece(b"", last=True)
    await holding
    third.send_piece(b"x" * 80, last=True)
    await intake(SCOPE, third.receive, third.send)
    assert third.sent[0]["status"] == 200, "what was held is let go"


@pytest.mark.contract("9.15")
async def test_large_body_is_let_go_and_then_refused_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def pause(_: float) -> None:
        paused.set()
        await go_on.wait()

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await JsonResponse({"detail": "no"}, 422)(scope, receive, send)

    monkeypatch.setattr(intake_module, "sleep", pause)
    monkeypatch.setattr(limits, "REQUESTS_BYTES", LARGE_BODY + 1)
    intake = BodyIntake(refuse)
    small, large, another = Body(), Body(), Body()
    small.send_piece(b"x", last=True)
    await intake(SCOPE, small.receive, small.send)
    assert small.sent[0]["status"] == 422
    assert not paused.is_set()
    large.send_piece(b"x" * (LARGE_BODY + 1), last=True)
    refused = asyncio.create_task(intake(SCOPE, large.receive, large.send))
    async with asyncio.timeout(60):
        await paused.wait()
    assert large.sent == []
    another.send_piece(b"x" * LARGE_BODY, last=True)
    await intake(SCOPE, another.receive, another.send)
    assert another.sent[0]["status"] == 422, "what was held is let go"
    go_on.set()
    await refused
    assert [message["type"] for message in large.sent] == ["http.response.start", "http.response.body"]


async def test_body_that_does_not_come_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.05)
    body = Body()
    body.send_piece(b"{")
    with pytest.raises(Exception, match="408"):
        await BodyIntake(read_all)(SCOPE, body.receive, body.send)


async def test_work_for_a_client_that_left_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def work(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    body = Body()
    body.send_piece(b"{}", last=True)
    working = asyncio.create_task(BodyIntake(work)(SCOPE, body.receive, body.send))
    body.leave()
    async with asyncio.timeout(60):
        await working
    assert cancelled.is_set()
    assert body.sent == []


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, int]]:
    """A server in this loop, with our connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = GuestServer(read_all, http=PatientConnection, drain=5)
    running = asyncio.create_task(server.serve_on(listener))
    try:
        yield listener.getsockname()
    finally:
        server.end()
        await running


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_headers_that_do_not_come_end_the_connection(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.1)
    async with listening() as address, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + begun)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert b"HTTP" not in await reader.read(), "it ends without a second answer"
        writer.close()


async def test_headers_without_end_end_the_connection() -> None:
    async with listening() as address, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(3 * limits.HEAD_BYTES // 1000):
            writer.write(f"X-{number}: ".encode() + b"x" * 1000 + b"\r\n")
        with suppress(ConnectionResetError):  # it may end before all was read
            assert await reader.read() == b""
        writer.close()


async def test_what_is_no_http_is_refused_in_the_shape_of_every_refusal() -> None:
    async with listening() as address, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"G@T / nonsense\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 400")
    assert b"Content-Type: application/json" in head
    assert json.loads(body) == {"detail": "Invalid HTTP request received."}
