"""Access to the HTTP API, and the limits of a request."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from hermes.gateway.platforms.api_door import MAX_DELAYED_ANSWERS, WRONG_KEY_DELAY_SECONDS, Door
from hermes.gateway.platforms.api_wire import ApiError
from hermes.types import Json
from tests.compression.hand_clock import HandClock
from tests.gateway.asking import ask, body, in_session, reply
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, scripted_model, write_config
from tests.plain_http import PLAIN

KEY = "sesame-1234"


async def refused(door: Door, authorization: str) -> int:
    with pytest.raises(ApiError) as error:
        await door.check(authorization)
    return error.value.status


async def test_wrong_keys_are_delayed_in_a_row_and_a_right_one_is_not() -> None:
    clock = HandClock()
    door = Door(KEY, clock)
    guesses = [asyncio.create_task(refused(door, f"Bearer {number}")) for number in range(3)]
    for answered in range(3):
        await clock.sleeper(WRONG_KEY_DELAY_SECONDS)
        await door.check(f"Bearer {KEY}")
        assert sum(guess.done() for guess in guesses) == answered
        clock.advance(WRONG_KEY_DELAY_SECONDS)
        await asyncio.wait([guess for guess in guesses if not guess.done()], return_when=asyncio.FIRST_COMPLETED)
    assert await asyncio.gather(*guesses) == [401, 401, 401]


async def test_excess_wrong_keys_are_refused_at_once() -> None:
    clock = HandClock()
    door = Door(KEY, clock)
    guesses = [asyncio.create_task(refused(door, f"Bearer {number}")) for number in range(MAX_DELAYED_ANSWERS)]
    await clock.sleeper(WRONG_KEY_DELAY_SECONDS)
    assert await refused(door, "Bearer one more") == 429
    await door.check(f"Bearer {KEY}")
    for guess in guesses:
        guess.cancel()


@pytest.mark.processes
def test_key_is_accepted_only_as_a_bearer_token(model: LoopbackModel, empty_home: Path) -> None:
    write_config(empty_home, api_settings(model, api__key=KEY))
    with GatewayProcess(empty_home) as gateway:
        for scheme in ("Basic", "Token", "Digest"):
            assert ask(gateway.url, "hi", headers={"Authorization": f"{scheme} {KEY}"}).status_code == 401
        for scheme in ("Bearer", "bearer"):
            assert reply(ask(gateway.url, "hi", headers={"Authorization": f"{scheme} {KEY}"})) == "echo: hi"


@pytest.mark.parametrize("name", ["X-Hermes-Session-Id", "X-Hermes-Session-Key", "Idempotency-Key"])
@pytest.mark.parametrize("second", ["one", "two"])
def test_duplicate_header_is_refused_and_nothing_is_stored(gateway: GatewayProcess, name: str, second: str) -> None:
    before = gateway.rows("SELECT count(*) FROM messages")
    headers = [("X-Hermes-Session-Id", "one"), ("X-Hermes-Session-Key", "one"), (name, "one"), (name, second)]
    given = list({pair: None for pair in headers[:2] if pair[0] != name}) + headers[2:]
    url = f"{gateway.url}/chat/completions"
    answer = httpx.post(url, json=body("hi"), headers=given, timeout=60, verify=PLAIN)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == f"the request has 2 {name.lower()} headers; send one"
    assert gateway.rows("SELECT count(*) FROM messages") == before


@pytest.mark.parametrize("headers", [{}, in_session("nul")])
@pytest.mark.parametrize("content", ["a\0b", [{"type": "text", "text": "a\0b"}]])
def test_message_with_a_nul_is_refused(gateway: GatewayProcess, headers: dict[str, str], content: Json) -> None:
    given = {"messages": [{"role": "user", "content": content}]}
    url = f"{gateway.url}/chat/completions"
    answer = httpx.post(url, json=given, headers=headers, timeout=60, verify=PLAIN)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("messages[0].content holds a NUL character (U+0000)")


@pytest.mark.parametrize("name", ["user", "model"])
@pytest.mark.parametrize("value", ["x" * 513, "x" * 1_000_000, "two\nlines"])
def test_name_in_a_request_is_short_and_on_one_line(gateway: GatewayProcess, name: str, value: str) -> None:
    before = len(gateway.rows("SELECT id FROM messages"))
    given, headers = {**body("hi"), name: value}, in_session("named")
    answer = httpx.post(f"{gateway.url}/chat/completions", json=given, headers=headers, timeout=60, verify=PLAIN)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name
    assert len(answer.content) < 1000
    assert len(gateway.rows("SELECT id FROM messages")) == before


def test_request_with_two_lengths_is_refused_and_its_connection_closed(gateway: GatewayProcess) -> None:
    host, port = gateway.url.removeprefix("http://").removesuffix("/v1").split(":")
    smuggled = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(smuggled) + 5}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled)
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"Content-Length" in answer


@pytest.mark.processes
@pytest.mark.parametrize("stream", [True, False])
def test_secret_in_an_error_of_the_model_does_not_reach_the_client(tmp_path: Path, stream: bool) -> None:
    secret = "sk-proj-0123456789abcdef"
    error = {"error": {"message": f"no quota for key {secret} at https://ann:hunter2@models.example/v1"}}
    says = {"chunks": [{"choices": [{"index": 0, "delta": {"content": "well"}}]}, error]}
    with scripted_model(then=says) as model:
        write_config(tmp_path / "home", api_settings(model))
        with GatewayProcess(tmp_path / "home") as gateway:
            answer = ask(gateway.url, "hi", stream=stream, headers=in_session("redacted"))
            assert "no quota for key" in answer.text
            shown = answer.text + gateway.output()
    assert secret not in shown
    assert "hunter2" not in shown
