"""Bounds of every text, list and body, and the response when one is exceeded."""

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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.http_server import GuestServer
from hermes.memory_server import limits
from hermes.memory_server.api import connection as connection_module
from hermes.memory_server.api import intake as intake_module
from hermes.memory_server.api.bodies import JsonResponse
from hermes.memory_server.api.connection import LimitedConnection, find_max_connections
from hermes.memory_server.api.intake import BodyIntake
from hermes.memory_server.db.database import Database
from tests.memory_server.floor import embed
from tests.memory_server.inside import serving
from tests.memory_server.talking import settle

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
    ("POST", "/sessions/s/peers", {f"p{n}": {} for n in range(limits.MAX_MEMBERS + 1)}),
    ("PUT", "/sessions/s/peers", {f"p{n}": {} for n in range(limits.MAX_MEMBERS + 1)}),
    ("POST", "/sessions", {"id": "s", "peers": {f"p{n}": {} for n in range(limits.MAX_MEMBERS + 1)}}),
    ("DELETE", "/sessions/s/peers", ["x"] * (limits.MAX_MEMBERS + 1)),
]


@pytest.mark.contract("9.8")
@pytest.mark.parametrize(("method", "path", "body"), QUERIES)
def test_query_of_25000_characters_is_accepted_and_its_first_10000_are_searched(
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

    settle(http)
    first = "zebra " + "x" * (limits.TEXT_CHARS - 6)
    longer = f"{first} {'walrus ' * 2000}"[: limits.SEARCH_CHARS]
    found = ask(first)
    while (again := ask(longer)) != found:  # finer vectors come in the background and change the order
        found, before = ask(first), found
        assert again == found or before != found, "nothing changed, and the answers differ"
    assert "zebra" in str(found)


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
        ("DELETE", "/sessions/s/peers", list(range(limits.MAX_MEMBERS))),
        ("POST", "/sessions/s/peers", {f"a b{n}": n for n in range(limits.MAX_MEMBERS)}),
        ("POST", "/sessions/s/messages", {"messages": [{"content": 5}] * 5000}),
        ("POST", "/conclusions", {"conclusions": [{}] * 20_000}),
    ],
)
def test_thousand_problems_of_a_request_are_told_in_a_short_answer(
    http: httpx.Client, method: str, path: str, body: Any
) -> None:
    answer = http.request(method, path, json=body)
    assert answer.status_code == 422
    assert 1 <= len(answer.json()["detail"]) <= limits.MAX_PROBLEMS
    assert len(answer.content) < 20_000


def test_list_of_more_than_can_be_members_is_refused_before_it_is_read(http: httpx.Client) -> None:
    for method, body in (("DELETE", list(range(200_000))), ("POST", {f"p{n}": {} for n in range(100_000)})):
        answer = http.request(method, "/sessions/s/peers", json=body)
        assert answer.status_code == 413
        assert answer.json() == {"detail": f"The request names more than {limits.MAX_MEMBERS} members"}


@pytest.mark.contract("9.8")
def test_hundred_long_conclusions_are_counted_and_embedded_off_the_loop(http: httpx.Client) -> None:
    """The conclusions are stored as usual; `bench` measures that the event loop stays free."""
    http.post("/peers", json={"id": "ann"}).raise_for_status()
    given = [{"content": f"{n} " + "word " * 1600, "observer_id": "ann", "observed_id": "ann"} for n in range(100)]
    answer = http.post("/conclusions", json={"conclusions": given})
    assert answer.status_code == 201
    assert [row["content"][:3] for row in answer.json()] == [f"{n} wor"[:3] for n in range(100)]


class Body:
    """A request whose body arrives in the given pieces."""

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


async def test_requests_share_bounded_memory_and_the_last_gets_429(
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
    monkeypatch.setattr(limits, "REQUESTS_BYTES", limits.LARGE_BODY_BYTES + 1)
    intake = BodyIntake(refuse)
    small, large, another = Body(), Body(), Body()
    small.send_piece(b"x", last=True)
    await intake(SCOPE, small.receive, small.send)
    assert small.sent[0]["status"] == 422
    assert not paused.is_set()
    large.send_piece(b"x" * (limits.LARGE_BODY_BYTES + 1), last=True)
    refused = asyncio.create_task(intake(SCOPE, large.receive, large.send))
    async with asyncio.timeout(60):
        await paused.wait()
    assert large.sent == []
    another.send_piece(b"x" * limits.LARGE_BODY_BYTES, last=True)
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
async def listening(app: ASGIApp = read_all) -> AsyncIterator[tuple[str, int]]:
    """Run a server with our connection class in this event loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = GuestServer(app, http=LimitedConnection, drain=5)
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


@pytest.mark.contract("9.17")
def test_large_body_with_too_many_values_is_refused_and_commas_in_texts_do_not_count(http: httpx.Client) -> None:
    numbers = b'{"query": "tea", "n": [' + b"1," * limits.MAX_BODY_VALUES + b"1]}"
    answer = http.post("/search", content=numbers, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (
        413,
        {"detail": f"Request holds more than {limits.MAX_BODY_VALUES} JSON values"},
    )
    texts = [mark * limits.MESSAGE_CHARS for mark in (",", '["', "\\", '\\"[')]
    said = [{"content": text[: limits.MESSAGE_CHARS], "peer_id": "ann"} for text in texts]
    assert http.post("/sessions/s/messages", json={"messages": said}).status_code == 201


@pytest.mark.parametrize(("numbers", "status"), [(4, 200), (5, 413)])
async def test_values_are_counted_alike_in_whatever_pieces_they_come(
    monkeypatch: pytest.MonkeyPatch, numbers: int, status: int
) -> None:
    monkeypatch.setattr(limits, "LARGE_BODY_BYTES", 5)
    monkeypatch.setattr(limits, "MAX_BODY_VALUES", 5)
    body = Body()
    for byte in json.dumps(['[,"\\', *[1] * numbers]).encode():
        body.send_piece(bytes([byte]))
    body.send_piece(b"", last=True)
    [refused] = await asyncio.gather(BodyIntake(read_all)(SCOPE, body.receive, body.send), return_exceptions=True)
    assert getattr(refused, "status_code", 200) == status


async def test_large_response_waits_for_room_unless_it_says_what_was_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESPONSES_BYTES", 100_000)
    taken = asyncio.Event()

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        await JsonResponse("x" * scope["size"], scope["status"])(scope, receive, send)

    async def take_late(message: Message) -> None:
        if message["type"] == "http.response.body":
            await taken.wait()

    async def ask(size: int, status: int = 200) -> tuple[int, int]:
        given = Body()
        await intake({**SCOPE, "size": size, "status": status}, given.receive, given.send)
        return given.sent[0]["status"], sum(len(message.get("body", b"")) for message in given.sent)

    intake = BodyIntake(show)
    waiting = asyncio.create_task(intake({**SCOPE, "size": 80_000, "status": 200}, Body().receive, take_late))
    await asyncio.sleep(0)
    assert (await ask(80_000))[0] == 429
    assert await ask(80_000, 201) == (201, 80_002)
    assert await ask(1000) == (200, 1002)
    taken.set()
    await waiting
    assert await ask(80_000) == (200, 80_002)


async def test_connection_whose_client_takes_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEND_SECONDS", 0.05)
    done = asyncio.Event()

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        await JsonResponse("x" * 50_000_000)(scope, receive, send)
        done.set()

    async with listening(BodyIntake(show)) as address, asyncio.timeout(60):
        with socket.create_connection(address) as client:
            await asyncio.get_running_loop().sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await done.wait()


async def test_connections_beyond_their_number_are_answered_health_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(connection_module, "MAX_HEALTH_CONNECTIONS", 1)

    async def ask(path: str) -> bytes:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        told = await reader.readline()
        writer.close()
        return told[9:12]

    async with listening(BodyIntake(read_all)) as address, asyncio.timeout(60):
        assert await ask("/x") == b"200"
        kept = [await asyncio.open_connection(*address)]
        kept[0][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await kept[0][0].readline())[9:12] == b"200"
        assert await ask("/x") == b"503"
        assert await ask("/health") == b"200"
        kept.append(await asyncio.open_connection(*address))
        assert await ask("/health") == b"503"
        for _, writer in kept:
            writer.close()


async def test_client_that_was_there_before_the_crowd_is_served_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_CONNECTIONS", 1)

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"HTTP/1.1 ")
        return await reader.readexactly(3)

    async with listening(BodyIntake(read_all)) as address, asyncio.timeout(60):
        first, idle, late = [await asyncio.open_connection(*address) for _ in range(3)]
        assert [await ask(*late), await ask(*first)] == [b"503", b"200"]
        for _, writer in (first, idle, late):
            writer.close()


def test_connections_leave_half_of_the_files_that_a_process_may_have() -> None:
    assert 0 < find_max_connections() <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


@pytest.mark.contract("9.17")
def test_properties_of_a_response_format_share_one_bounded_answer(http: httpx.Client) -> None:
    said = {"messages": [{"content": "I like tea. " + "x" * 24_000, "peer_id": "ann"}] * 5}
    http.post("/sessions/s/messages", json=said).raise_for_status()
    settle(http)
    for count in (1, 20, limits.MAX_SCHEMA_PROPERTIES):
        wanted = {f"f{n}": {"type": "array", "items": {"type": "string"}} for n in range(count)}
        asked = {"query": "tea", "response_format": {"type": "object", "properties": wanted}}
        content = http.post("/peers/ann/chat", json=asked).json()["content"]
        filled = json.loads(content)
        assert len(filled) == count
        assert all("I like tea." in texts[0] for texts in filled.values())
        assert sum(len(text) for texts in filled.values() for text in texts) <= limits.ANSWER_CHARS


FIELDS = {f"f{n}": {"type": "string"} for n in range(limits.MAX_SCHEMA_PROPERTIES)}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {**FIELDS, "one": {}}}, "100 properties"),
        ({"properties": {"a": {"type": "object", "properties": FIELDS}}}, "100 properties"),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"properties": FIELDS}}}, "100 properties"),
        ({"properties": {"a": {"enum": ["x" * 70_000]}}}, "65536 characters"),
        ({"properties": {}, "description": "x" * 70_000}, "65536 characters"),
    ],
)
def test_response_format_that_is_too_large_is_refused(http: httpx.Client, schema: Any, reason: str) -> None:
    answer = http.post("/chat", json={"query": "tea", "response_format": {"type": "object", **schema}})
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


async def test_status_of_the_queue_tells_so_many_sessions_apart(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_STATUS_SESSIONS", 2)
    async with serving(database) as client:
        for session in ("a", "b", "c"):
            said = {"messages": [{"content": "I like tea.", "peer_id": "ann"}]}
            await client.post(f"/v3/workspaces/w/sessions/{session}/messages", json=said)
        told = (await client.get("/v3/workspaces/w/queue/status")).json()
    assert (told["total_work_units"], len(told["sessions"])) == (3, 2)
