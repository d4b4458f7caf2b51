"""The OpenAI-compatible API over real sockets: a gateway process, a model, and various clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import httpx
import pytest

from hermes.types import Json
from tests.gateway.asking import ask, ask_async, body, chunks, in_session, leave, reply, streamed_text
from tests.gateway.processes import (
    GatewayProcess,
    LoopbackModel,
    api_settings,
    appears,
    echo_model,
    rows,
    said,
    scripted_model,
    write_config,
)
from tests.llm.loopback import LoopbackServer
from tests.plain_http import PLAIN

pytestmark = [pytest.mark.contract("10.2"), pytest.mark.processes]


def test_the_official_client_gets_an_answer_whole(gateway: GatewayProcess) -> None:
    import openai  # a second to import: only for whoever runs this

    with openai.OpenAI(base_url=gateway.url, api_key="none") as client:
        answer = client.chat.completions.create(model="hermes", messages=[{"role": "user", "content": "hello"}])
        assert answer.choices[0].message.content == "echo: hello"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.total_tokens == 12
        assert next(model.id for model in client.models.list()) == "hermes"
        assert client.models.retrieve("hermes:full").id == "hermes:full"


def test_the_official_client_gets_an_answer_as_a_stream(gateway: GatewayProcess) -> None:
    import openai  # a second to import: only for whoever runs this

    with openai.OpenAI(base_url=gateway.url, api_key="none") as client:
        stream = client.chat.completions.create(
            model="hermes",
            messages=[{"role": "user", "content": "a story, please"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"X-Hermes-Session-Id": "official-stream"},
        )
        parts = list(stream)
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == "echo: a story, please"
    assert len([p for p in parts if p.choices and p.choices[0].delta.content]) > 1
    assert [p.choices[0].finish_reason for p in parts if p.choices][-1] == "stop"
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens == 5


async def test_the_official_async_client_streams_many_sessions_at_once(gateway: GatewayProcess) -> None:
    import openai  # a second to import: only for whoever runs this

    async with openai.AsyncOpenAI(base_url=gateway.url, api_key="none") as client:

        async def talk(number: int) -> str:
            stream = await client.chat.completions.create(
                model="hermes",
                messages=[{"role": "user", "content": f"number {number}"}],
                stream=True,
                extra_headers={"X-Hermes-Session-Id": f"async-{number}"},
            )
            return "".join([part.choices[0].delta.content or "" async for part in stream])

        answers = await asyncio.gather(*(talk(number) for number in range(12)))
    assert answers == [f"echo: number {number}" for number in range(12)]


def test_curl_gets_a_stream(gateway: GatewayProcess) -> None:
    done = subprocess.run(
        [
            *("curl", "-sN", f"{gateway.url}/chat/completions"),
            *("-H", "Content-Type: application/json", "-H", "X-Hermes-Session-Id: from-curl"),
            *("-d", json.dumps(body("hello curl", stream=True))),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    events = chunks(done.stdout)
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in event for event in events[:-1])
    assert streamed_text(events) == "echo: hello curl"


def test_request_without_a_session_stores_nothing(gateway: GatewayProcess, model: LoopbackModel) -> None:
    before = _counts(gateway.home)
    messages = [
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "aye"},
        {"role": "user", "content": [{"type": "text", "text": "second"}, {"type": "text", "text": "part"}]},
    ]
    answer = httpx.post(f"{gateway.url}/chat/completions", json={"messages": messages}, timeout=60, verify=PLAIN)
    assert reply(answer) == "echo: second\npart"
    assert "x-hermes-session-id" not in answer.headers
    assert _counts(gateway.home) == before
    asked = model.requests()[-1]
    assert [(m["role"], m["content"]) for m in asked[1:]] == [
        ("system", "Speak like a pirate."),
        ("user", "first"),
        ("assistant", "aye"),
        ("user", "second\npart"),
    ]


def test_offline_reply_without_a_session_promises_no_storage(tmp_path: Path) -> None:
    write_config(tmp_path, {"api.enabled": True, "api.port": 0, "memory.provider": "none"})
    with GatewayProcess(tmp_path) as gateway:
        assert reply(ask(gateway.url, "I like tea")) == "Heard, and not kept: I like tea"
        assert reply(ask(gateway.url, "I like tea", headers=in_session("kept"))) == "Saved: I like tea"


def _counts(home: Path) -> list[tuple[object, ...]]:
    tables = ("sessions", "messages", "hermes_queue", "hermes_routes")
    return [rows(home, f"SELECT count(*) FROM {table}")[0] for table in tables]


@pytest.mark.contract("P3")
def test_a_session_keeps_its_id_and_we_keep_its_history(gateway: GatewayProcess, model: LoopbackModel) -> None:
    for text in ("one", "two", "three"):
        answer = ask(gateway.url, text, headers=in_session("my own id"))
        assert reply(answer) == f"echo: {text}"
        assert answer.headers["x-hermes-session-id"] == "my own id"
    asked = [(m["role"], m["content"]) for m in model.requests()[-1] if m["role"] != "system"]
    assert asked == [
        ("user", "one"),
        ("assistant", "echo: one"),
        ("user", "two"),
        ("assistant", "echo: two"),
        ("user", "three"),
    ]


@pytest.mark.contract("1.2")
def test_session_key_identifies_one_session_until_new(gateway: GatewayProcess) -> None:
    key = {"X-Hermes-Session-Key": "agent:main:shop:dm:77"}
    first = ask(gateway.url, "hello", headers=key)
    again = ask(gateway.url, "hello again", headers=key)
    session = first.headers["x-hermes-session-id"]
    assert again.headers["x-hermes-session-id"] == session
    assert again.headers["x-hermes-session-key"] == key["X-Hermes-Session-Key"]
    assert "A new session begins" in reply(ask(gateway.url, "/new", headers=key))
    after = ask(gateway.url, "hello anew", headers=key)
    assert after.headers["x-hermes-session-id"] != session
    assert said(gateway.home, session) == ["hello", "hello again"]
    # Whoever names the old session is still in it.
    assert ask(gateway.url, "back", headers=in_session(session)).headers["x-hermes-session-id"] == session


@pytest.mark.contract("1.2")
async def test_an_answer_names_the_session_that_it_is_stored_in(empty_home: Path) -> None:
    key = {"X-Hermes-Session-Key": "k"}
    with echo_model(delay=0.3) as slow:
        write_config(empty_home, api_settings(slow))
        with GatewayProcess(empty_home) as gateway:
            async with httpx.AsyncClient(timeout=60, verify=PLAIN) as client:
                asked = []
                for text, stream in (("old", False), ("/new", False), ("whole", False), ("streamed", True)):
                    headers = {**key, "Idempotency-Key": text}
                    post = client.post(
                        f"{gateway.url}/chat/completions", json=body(text, stream=stream), headers=headers
                    )
                    asked.append(asyncio.create_task(post))
                    await appears(empty_home, "SELECT 1 FROM hermes_queue WHERE key LIKE ?", f'%"{text}"]')
                answers = [await answer for answer in asked]
    named = [answer.headers["x-hermes-session-id"] for answer in answers]
    assert said(empty_home, named[0]) == ["old"]
    assert said(empty_home, named[2]) == ["whole", "streamed"]
    assert named[3] == named[2] != named[0]


@pytest.mark.contract("2.2", "P2")
def test_the_same_idempotency_key_gives_the_stored_reply_without_a_second_turn(gateway: GatewayProcess) -> None:
    headers = in_session("repeated", "key-1")
    first = ask(gateway.url, "only once", headers=headers)
    second = ask(gateway.url, "only once", headers=headers)
    streamed = ask(gateway.url, "only once", headers=headers, stream=True)
    assert reply(first) == reply(second) == streamed_text(chunks(streamed.text)) == "echo: only once"
    assert said(gateway.home, "repeated") == ["only once"]
    assert said(gateway.home, "repeated", "assistant") == ["echo: only once"]


@pytest.mark.contract("2.2")
async def test_two_requests_with_one_key_at_the_same_time_share_one_turn(gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(verify=PLAIN) as client:
        answers = await asyncio.gather(
            *(ask_async(client, gateway.url, "at once", headers=in_session("shared", "key-2")) for _ in range(6))
        )
    assert {reply(answer) for answer in answers} == {"echo: at once"}
    assert said(gateway.home, "shared") == ["at once"]


@pytest.mark.contract("2.2")
def test_a_command_repeated_with_its_key_has_one_effect(gateway: GatewayProcess) -> None:
    headers = {"X-Hermes-Session-Key": "agent:main:shop:dm:78", "Idempotency-Key": "new-1"}
    first = reply(ask(gateway.url, "/new", headers=headers))
    assert reply(ask(gateway.url, "/new", headers=headers)) == first


@pytest.mark.contract("2.4")
async def test_each_request_is_a_separate_turn_in_order(gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(verify=PLAIN) as client:
        asked = []
        for number in range(8):
            asked.append(
                asyncio.create_task(
                    ask_async(client, gateway.url, f"m{number}", headers=in_session("ordered", f"o{number}"))
                )
            )
            await appears(gateway.home, "SELECT 1 FROM hermes_queue WHERE key LIKE ?", f'%"o{number}"]')
        answers = [reply(await answer) for answer in asked]
    assert answers == [f"echo: m{number}" for number in range(8)]
    spoken = rows(gateway.home, "SELECT content FROM messages WHERE session_id = 'ordered' ORDER BY id")
    assert [row[0] for row in spoken] == [text for n in range(8) for text in (f"m{n}", f"echo: m{n}")]


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[1]", 400, "must be a JSON object"),
        (b"\xff\xfe", 400, "not valid JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        ({}, 400, "'messages'"),
        ({"messages": []}, 400, "'messages'"),
        ({"messages": "hi"}, 400, "'messages'"),
        ({"messages": ["hi"]}, 400, "messages[0] must be an object"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "must be text or a list"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400, "only text"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, 400, "only text"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "not valid Unicode"),
        ({**body("hi"), "stream": "yes"}, 400, "'stream'"),
        ({**body("hi"), "n": 2}, 400, "one choice"),
        ({**body("hi"), "tools": [{"type": "function"}]}, 400, "'tools'"),
        ({**body("hi"), "stream_options": []}, 400, "'stream_options'"),
    ],
)
def test_invalid_requests_get_an_error_object(
    gateway: GatewayProcess, content: bytes | Json, status: int, says: str
) -> None:
    sent = content if isinstance(content, bytes) else json.dumps(content).encode()
    for headers in ({}, in_session("malformed")):
        answer = httpx.post(f"{gateway.url}/chat/completions", content=sent, headers=headers, timeout=60, verify=PLAIN)
        assert answer.status_code == status
        assert says in answer.json()["error"]["message"]
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert rows(gateway.home, "SELECT 1 FROM sessions WHERE id = 'malformed'") == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/chat/completions", 405), ("POST", "/models", 405), ("GET", "/models/x", 404)],
)
def test_unknown_paths_and_methods_are_error_objects(
    gateway: GatewayProcess, method: str, path: str, status: int
) -> None:
    answer = httpx.request(method, f"{gateway.url}{path}", timeout=60, verify=PLAIN)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("headers", [in_session("a\x7fb"), in_session("x" * 600), in_session("")])
def test_invalid_session_id_is_refused(gateway: GatewayProcess, headers: dict[str, str]) -> None:
    assert ask(gateway.url, "hi", headers=headers).status_code == 400


def test_snapshot_accepts_no_messages(gateway: GatewayProcess) -> None:
    answer = ask(gateway.url, "hi", headers=in_session("s.snapshot.20260101T000000Z"))
    assert answer.status_code == 400
    assert "snapshot" in answer.json()["error"]["message"]


@pytest.mark.parametrize("spelled", ["length", "chunked"])
def test_oversized_body_is_refused(gateway: GatewayProcess, spelled: str) -> None:
    large = json.dumps(body("x" * 11_000_000)).encode()
    content = large if spelled == "length" else (large[at : at + 65536] for at in range(0, len(large), 65536))
    try:
        answer = httpx.post(f"{gateway.url}/chat/completions", content=content, timeout=60, verify=PLAIN)
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        return  # the server hung up before we had sent it all
    assert answer.status_code == 413
    assert "10,485,760" in answer.json()["error"]["message"]


def test_web_pages_cannot_use_an_api_without_a_key(gateway: GatewayProcess) -> None:
    assert ask(gateway.url, "hi", headers={"Origin": "https://evil.example"}).status_code == 403
    assert ask(gateway.url, "hi", headers={"Host": "evil.example"}).status_code == 403


def test_key_is_required(model: LoopbackModel, empty_home: Path) -> None:
    import openai  # a second to import: only for whoever runs this

    write_config(empty_home, api_settings(model))
    with GatewayProcess(empty_home, env={"API_SERVER_KEY": "sesame"}) as gateway:
        health = httpx.get(gateway.url.replace("/v1", "/health"), timeout=60, verify=PLAIN)
        assert health.json() == {"status": "ok"}
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "sesame"}, {"Authorization": "Bearer"}):
            for answer in (
                ask(gateway.url, "hi", headers=given),
                httpx.get(f"{gateway.url}/models", headers=given, timeout=60, verify=PLAIN),
            ):
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
        with openai.OpenAI(base_url=gateway.url, api_key="sesame") as client:
            answered = client.chat.completions.create(model="h", messages=[{"role": "user", "content": "hi"}])
            assert answered.choices[0].message.content == "echo: hi"
        with openai.OpenAI(base_url=gateway.url, api_key="no") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        gateway.stop()
    assert "sesame" not in (empty_home / "logs" / "agent.log").read_text()


def test_public_address_requires_a_key(model: LoopbackModel, empty_home: Path) -> None:
    write_config(empty_home, api_settings(model, api__host="0.0.0.0"))  # noqa: S104 - that is the point
    gateway = GatewayProcess(empty_home).begin()
    assert gateway.wait() == 2
    assert "api.key" in gateway.output()
    assert "Traceback" not in gateway.output()


@pytest.mark.contract("P1")
def test_disconnecting_client_does_not_end_the_turn(empty_home: Path) -> None:
    with echo_model() as model:
        write_config(empty_home, api_settings(model))
        with GatewayProcess(empty_home) as gateway:
            model.hold()
            for asked, (name, stream) in enumerate((("leaver-1", True), ("leaver-2", False)), start=1):
                leave(
                    gateway.url,
                    "I am off",
                    lambda count=asked: len(model.requests()) == count,  # type: ignore[misc]
                    headers=in_session(name),
                    stream=stream,
                )
            model.go_on()
            for name in ("leaver-1", "leaver-2"):
                reply(ask(gateway.url, "back", headers=in_session(name)))
                assert said(empty_home, name, "assistant") == ["echo: I am off", "echo: back"]


def test_model_failure_is_an_error_object_and_the_message_is_kept(empty_home: Path) -> None:
    nobody = LoopbackModel(LoopbackServer(port=1))
    write_config(empty_home, api_settings(nobody))
    with GatewayProcess(empty_home) as gateway:
        answer = ask(gateway.url, "hello?", headers=in_session("unlucky", "u1"))
        assert answer.status_code == 502
        assert answer.headers["x-should-retry"] == "false"
        assert answer.headers["x-hermes-session-id"] == "unlucky"
        assert answer.json()["error"]["code"] == "model_failed"
        again = ask(gateway.url, "hello?", headers=in_session("unlucky", "u1"))
        assert (again.status_code, again.json()) == (502, answer.json())
        streamed = chunks(ask(gateway.url, "and now?", headers=in_session("unlucky"), stream=True).text)
        assert streamed[-1]["error"]["code"] == "model_failed"
    assert said(empty_home, "unlucky") == ["hello?", "and now?"]


@pytest.mark.contract("P2")
def test_failed_message_is_answered_when_repeated(empty_home: Path) -> None:
    """A client without a session id can repeat only the message itself."""
    with scripted_model([{"status": 400, "body": "no"}] * 2) as model:  # the first is for its list of models
        write_config(empty_home, api_settings(model, api__memory="full"))
        with GatewayProcess(empty_home) as gateway:
            failed = ask(gateway.url, "hello?")
            assert (failed.status_code, failed.json()["error"]["code"]) == (502, "model_failed")
            again = ask(gateway.url, "hello?")
    assert again.status_code == 200
    session = again.headers["x-hermes-session-id"]
    assert session == failed.headers["x-hermes-session-id"]
    assert said(empty_home, session) == ["hello?"]
    assert len(said(empty_home, session, "assistant")) == 1


def test_stop_overtakes_and_keeps_the_partial_reply(empty_home: Path) -> None:
    begun = "echo: a very long story"
    with scripted_model([{"says": {"text": begun, "ending": "hang"}}]) as model:
        write_config(empty_home, api_settings(model))
        with GatewayProcess(empty_home) as gateway, httpx.Client(timeout=60, verify=PLAIN) as client:
            headers = in_session("stopped")
            asked = body("a very long story that nobody wants to hear to its end", stream=True)
            with client.stream("POST", f"{gateway.url}/chat/completions", json=asked, headers=headers) as stream:
                lines = stream.iter_lines()
                while "ech" not in next(lines):
                    pass
                assert reply(ask(gateway.url, "/stop", headers=headers)) == "Stopped."
                rest = list(lines)
            assert "data: [DONE]" in rest
            assert reply(ask(gateway.url, "/stop", headers=headers)) == "Nothing is running."
    [kept] = said(empty_home, "stopped", "assistant")
    assert isinstance(kept, str)
    assert kept.startswith("ech")
    assert begun.startswith(kept)


def test_truncated_reply_has_finish_reason_length_also_when_repeated(tmp_path: Path) -> None:
    with scripted_model(then={"says": {"text": "one, two,", "finish_reason": "length"}}) as model:
        write_config(tmp_path / "home", api_settings(model))
        with GatewayProcess(tmp_path / "home") as gateway:
            for _ in range(2):
                answer = ask(gateway.url, "count", headers=in_session("cut", "once"))
                assert reply(answer) == "one, two,"
                assert answer.json()["choices"][0]["finish_reason"] == "length"
            streamed = chunks(ask(gateway.url, "count", stream=True, headers=in_session("cut", "twice")).text)
    assert streamed[-2]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [True, False])
def test_message_larger_than_the_window_adds_a_notice(tmp_path: Path, stream: bool) -> None:
    with scripted_model(then={"says": {"text": "a summary, or a reply"}}) as model:
        write_config(tmp_path / "home", api_settings(model, model__context_length=8000))
        with GatewayProcess(tmp_path / "home") as gateway:
            short = ask(gateway.url, "hello", stream=stream, headers=in_session("large"))
            large = ask(gateway.url, "word " * 20_000, stream=stream, headers=in_session("large"))
    assert short.status_code == large.status_code == 200
    assert "notices" not in short.text
    answer = chunks(large.text)[-2] if stream else large.json()
    [told] = answer["hermes"]["notices"]
    assert "too long for the model, which sees a summary" in told
