"""Faults of an endpoint over real sockets: each ends in one clear last event."""

from __future__ import annotations

import asyncio
import logging
import ssl
from email.utils import formatdate

import pytest

from hermes.errors import SettingsError
from hermes.llm.connection import Retries, Timeouts
from hermes.llm.events import Completed, ModelFailed, Reply, Retrying, TextPiece
from hermes.llm.failures import CONNECT_ERROR_CAUSES, STATUSES, TRANSPORT
from hermes.llm.model import Endpoint
from hermes.llm.openai_compatible import OpenAICompatible
from hermes.types import Json, ToolCall
from tests.llm.calling import IMPATIENT, KEY, closed_port, collect, complete, fail, model_at
from tests.llm.loopback import Answer, LoopbackServer, chunk, fails, says
from tests.llm.steady_clock import SteadyClock

pytestmark = pytest.mark.contract("10.6")

HTML = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
ONCE = Retries(max_retries=0)
CAUSES = dict(CONNECT_ERROR_CAUSES)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_endpoint_that_does_not_run_is_tried_again_and_then_named(host: str) -> None:
    clock = SteadyClock()
    with closed_port() as port:
        events = await collect(model_at(f"http://{host}:{port}/v1", clock=clock))
    message = f"{host}:{port} {CAUSES[ConnectionRefusedError]}"
    assert events == [
        Retrying(1, 0.5, message),
        Retrying(2, 1.0, message),
        Retrying(3, 2.0, message),
        ModelFailed("refused", message, retryable=True),
    ]
    assert clock.sleeps == [0.5, 1.0, 2.0]


async def test_a_name_that_nobody_knows_is_said_to_be_unknown() -> None:
    failed = await fail(model_at("http://nowhere.invalid/v1", retries=ONCE))
    assert (failed.kind, failed.retryable) == ("refused", True)
    assert failed.message.startswith("nowhere.invalid ")


@pytest.mark.parametrize("host", ["a" * 70, "xn--a", "1.2.3.4.5", "a..b"])
async def test_a_name_that_can_be_none_is_a_failure_and_no_exception(host: str) -> None:
    failed = await fail(model_at(f"http://{host}.invalid/v1", retries=ONCE))
    assert failed.kind in ("refused", "bad_request")


async def test_https_to_an_endpoint_without_tls_says_so() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        failed = await fail(model_at(f"https://127.0.0.1:{port}/v1", retries=ONCE))
    assert failed.message == f"127.0.0.1:{port} {CAUSES[ssl.SSLError]}"


async def test_a_connection_that_is_never_made_hits_the_connect_timeout() -> None:
    timeouts = Timeouts(connect=0.1)
    async with LoopbackServer() as server:
        failed = await fail(model_at(f"https://127.0.0.1:{server.port}/v1", retries=ONCE, timeouts=timeouts))
    assert failed.kind == "refused"
    assert failed.message == f"127.0.0.1:{server.port} {TRANSPORT['ConnectTimeout'][1]}"


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (301, "bad_request", "redirects"),
        (400, "bad_request", "nope"),
        (401, "auth", "check the key"),
        (402, "auth", "no credit"),
        (403, "auth", "check the key"),
        (404, "bad_request", STATUSES[404][1]),
        (405, "bad_request", "/v1"),
        (413, "context_too_long", "shorter"),
        (418, "bad_request", "nope"),
        (422, "bad_request", "nope"),
        (429, "rate_limited", "wait"),
        (500, "server", "try again"),
        (503, "server", "try again"),
        (599, "server", "try again"),
    ],
)
async def test_a_status_error_names_host_reason_and_advice(status: int, kind: str, advice: str) -> None:
    async with LoopbackServer(then=fails(status, "nope")) as server:
        failed = await fail(model_at(server, retries=ONCE))
    assert failed.kind == kind
    assert failed.message.startswith(f"127.0.0.1:{server.port} answered {status} (nope)")
    assert advice in failed.message
    assert failed.partial == Reply()


@pytest.mark.parametrize("status", [401, 403, 404, 413])
async def test_permanent_failures_are_not_retried(status: int) -> None:
    async with LoopbackServer(then=fails(status)) as server:
        assert not (await fail(model_at(server))).retryable
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
async def test_transient_failures_are_retried(status: int) -> None:
    clock = SteadyClock()
    async with LoopbackServer([fails(status), fails(status), says("ok")]) as server:
        assert (await complete(model_at(server, clock=clock))).text == "ok"
    assert clock.sleeps == [0.5, 1.0]


async def test_retries_are_limited() -> None:
    async with LoopbackServer(then=fails(503)) as server:
        failed = await fail(model_at(server, retries=Retries(max_retries=2)))
    assert (failed.kind, failed.retryable, len(server.requests)) == ("server", True, 3)


@pytest.mark.parametrize("wish", ["7", "7.0", "date", "ms"])
async def test_retry_after_is_obeyed(wish: str) -> None:
    clock = SteadyClock()
    date = formatdate(clock.now() + 7, usegmt=True)
    headers = {"retry-after-ms": "7000"} if wish == "ms" else {"Retry-After": date if wish == "date" else wish}
    async with LoopbackServer([fails(429, headers=headers), says("ok")]) as server:
        assert (await complete(model_at(server, clock=clock))).text == "ok"
    assert clock.sleeps == [7.0]


async def test_a_retry_after_of_an_hour_is_reported_and_not_waited_for() -> None:
    clock = SteadyClock()
    async with LoopbackServer([fails(429, headers={"Retry-After": "3600"})]) as server:
        failed = await fail(model_at(server, clock=clock))
    assert (failed.kind, failed.retryable, failed.retry_after, clock.sleeps) == ("rate_limited", True, 3600.0, [])


@pytest.mark.parametrize("wish", ["soon", "", "-5", "nan", "inf", "Mon, 99 Foo 2020"])
async def test_an_invalid_retry_after_is_ignored(wish: str) -> None:
    clock = SteadyClock()
    async with LoopbackServer([fails(429, headers={"Retry-After": wish}), says("ok")]) as server:
        await complete(model_at(server, clock=clock))
    assert clock.sleeps == [0.5]


async def test_a_request_is_not_retried_when_the_account_has_no_credit() -> None:
    async with LoopbackServer([fails(429, "You exceeded your quota", code="insufficient_quota")]) as server:
        failed = await fail(model_at(server))
    assert (failed.kind, failed.retryable) == ("auth", False)
    assert "no credit" in failed.message


async def test_a_connection_reset_after_output_ends_the_reply_with_what_was_said() -> None:
    partial = [chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({"tool_calls": [_piece('{"x')]})]
    async with LoopbackServer([Answer(chunks=partial, ending="reset"), says("again")]) as server:
        failed = await fail(model_at(server))
    assert (failed.kind, failed.retryable) == ("interrupted", True)
    assert failed.partial == Reply("Hello", tool_calls=(ToolCall("a", "read", '{"x'),), model="loop-1")
    assert len(server.requests) == 1


def _piece(arguments: str) -> Json:
    return {"index": 0, "id": "a", "function": {"name": "read", "arguments": arguments}}


@pytest.mark.parametrize("ending", ["reset", "drop", "cut"])
async def test_a_connection_lost_before_any_output_is_tried_again(ending: str) -> None:
    lost = Answer.from_json({"chunks": [chunk({"role": "assistant", "content": ""})], "ending": ending})
    async with LoopbackServer([lost, says("ok")]) as server:
        events = await collect(model_at(server))
    assert isinstance(events[0], Retrying)
    assert isinstance(events[-1], Completed)
    assert len(server.requests) == 2


@pytest.mark.parametrize("last", ['data: {"cho', "dat", ""])
async def test_a_stream_that_just_ends_is_no_whole_reply(last: str) -> None:
    answer = Answer(chunks=[chunk({"content": "Hel"}), *([last] if last else [])], ending="cut")
    async with LoopbackServer([answer]) as server:
        events = await collect(model_at(server))
    failed = events[-1]
    assert isinstance(failed, ModelFailed)
    assert (events[0], failed.kind, failed.partial.text) == (TextPiece("Hel"), "interrupted", "Hel")


async def test_an_endpoint_that_never_answers_hits_the_first_byte_timeout() -> None:
    async with LoopbackServer([says("late", delay=60)]) as server:
        failed = await fail(model_at(server, timeouts=IMPATIENT))
        await server.hung_up.wait()
    assert (failed.kind, failed.retryable, len(server.requests)) == ("timeout", True, 1)
    assert failed.message == f"127.0.0.1:{server.port} did not answer within 0.5 s (`model.timeout`)"


async def test_an_endpoint_that_falls_silent_hits_the_idle_timeout() -> None:
    timeouts = Timeouts(connect=5, first_byte=60, idle=0.5, total=120)
    async with LoopbackServer([says("Hello", ending="hang")]) as server:
        failed = await fail(model_at(server, timeouts=timeouts))
        await server.hung_up.wait()
    assert (failed.kind, failed.partial.text) == ("timeout", "Hello")
    assert failed.message == f"127.0.0.1:{server.port} sent nothing more for 0.5 s (`model.timeout`)"


async def test_an_endpoint_that_drips_for_ever_hits_the_total_timeout() -> None:
    timeouts = Timeouts(connect=5, first_byte=5, idle=5, total=0.3)
    drip = Answer(chunks=[": still here\n\n"] * 10_000, pause=0.01)
    async with LoopbackServer([drip]) as server:
        failed = await fail(model_at(server, timeouts=timeouts))
    assert failed.kind == "timeout"
    assert "0.3 s" in failed.message


def test_a_timeout_of_zero_is_refused() -> None:
    with pytest.raises(SettingsError, match="idle"):
        Timeouts(idle=0)


@pytest.mark.parametrize("bad", ["data: {broken\n\n", "data: 42\n\n", "data: \n\n"])
async def test_a_chunk_that_is_not_json_ends_the_reply(bad: str) -> None:
    async with LoopbackServer([Answer(chunks=[chunk({"content": "Hel"}), bad, chunk({"content": "lo"})])]) as server:
        failed = await fail(model_at(server))
    assert (failed.kind, failed.partial.text) == ("bad_reply", "Hel")
    assert failed.message.startswith(f"127.0.0.1:{server.port} sent a chunk that is not")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(chunks=[{"choices": []}]),
        Answer(chunks=[{"choices": None}]),
        Answer(chunks=[]),
        Answer(chunks=[], ending="cut"),
        Answer(body='{"choices": []}'),
        Answer(body="{}"),
        Answer(body=""),
        Answer(body="   "),
        Answer(body="It works!"),
        Answer(body='{"choi'),
    ],
)
async def test_an_answer_without_a_reply_is_a_bad_reply(answer: Answer) -> None:
    async with LoopbackServer([answer]) as server:
        failed = await fail(model_at(server))
    assert failed.kind == "bad_reply"
    assert failed.message.startswith(f"127.0.0.1:{server.port} sent ")


async def test_a_web_page_in_place_of_a_reply_points_to_the_url() -> None:
    async with LoopbackServer([Answer(body=HTML, headers={"Content-Type": "text/html"})]) as server:
        failed = await fail(model_at(server))
    assert failed.kind == "bad_reply"
    assert failed.message == (
        f"127.0.0.1:{server.port} sent a web page titled '502 Bad Gateway': check the URL; most end in /v1"
    )


async def test_an_error_page_is_described_by_its_title() -> None:
    async with LoopbackServer([Answer(status=502, body=HTML)]) as server:
        failed = await fail(model_at(server, retries=ONCE))
    assert failed.message == (
        f"127.0.0.1:{server.port} answered 502 (a web page titled '502 Bad Gateway'): try again later"
    )


async def test_a_body_that_cannot_be_unpacked_is_a_bad_reply() -> None:
    async with LoopbackServer([Answer(body="no gzip", headers={"Content-Encoding": "gzip"})]) as server:
        assert (await fail(model_at(server))).kind == "bad_reply"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ('data: {"error": {"message": "boom", "code": 502}}\n\n', "server"),
        ('data: {"error": {"message": "slow down", "code": 429}}\n\n', "rate_limited"),
        ('data: {"error": "boom"}\n\n', "server"),
        ('error: {"code": 500, "message": "boom"}\n\n', "server"),
        (
            'event: error\ndata: {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}\n\n',
            "context_too_long",
        ),
        ('data: {"error": {"message": "no", "type": "invalid_request_error"}}\n\n', "bad_request"),
    ],
)
async def test_an_error_inside_the_stream_is_classified(error: str, kind: str) -> None:
    async with LoopbackServer([Answer(chunks=[chunk({"content": "Hel"}), error])]) as server:
        failed = await fail(model_at(server))
    assert (failed.kind, failed.partial.text) == (kind, "Hel")
    assert "broke off" in failed.message


async def test_an_error_inside_the_stream_before_any_output_is_tried_again() -> None:
    async with LoopbackServer([Answer(chunks=['data: {"error": {"code": 503}}\n\n']), says("ok")]) as server:
        assert (await complete(model_at(server))).text == "ok"


async def test_the_key_is_in_no_message_repr_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = f"Incorrect key {KEY} " + "x" * 180 + KEY
    answers = [fails(500, told), Answer(status=401, body=told), Answer(chunks=[{"error": {"message": told}}])]
    answers += [
        Answer(status=401, body='{"error": "' + KEY.replace("-", "\\u002d") + '"}'),
        Answer(body=f"<title>{KEY}"),
    ]
    async with LoopbackServer(answers) as server:
        model = model_at(server)
        everything = repr(model) + repr(vars(model))
        for _ in range(4):
            everything += repr(await collect(model))
    assert "***" in everything
    assert KEY[:6] not in everything + caplog.text
    assert all(KEY in request.headers["authorization"] for request in server.requests)


async def test_a_password_in_the_url_is_sent_but_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with LoopbackServer([fails(401, "hunter2-hunter2 is wrong")]) as server:
        model = model_at(f"http://me:hunter2-hunter2@127.0.0.1:{server.port}/v1", api_key=None)
        everything = repr(model) + repr(vars(model)) + repr(await collect(model))
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    assert "hunter2" not in everything + caplog.text


@pytest.mark.parametrize("key", ["sk-ключ", "sk one two", "sk-\nnew"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(SettingsError) as raised:
        OpenAICompatible("http://127.0.0.1/v1", "m", context_length=1, api_key=key)
    assert key not in raised.value.line()


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x/v1", "http://", "http://x:99999/v1", "http://a b/v1"])
def test_a_url_that_cannot_be_called_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="is not the URL of a model endpoint"):
        Endpoint.parse(url)


async def test_proxies_do_not_stand_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    async with LoopbackServer(then=says("ok")) as server:
        assert (await complete(model_at(server))).text == "ok"
        assert (await complete(model_at(f"http://localhost:{server.port}/v1"))).text == "ok"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "nonsense://x"])
async def test_a_proxy_that_cannot_be_used_is_a_failure_and_no_exception(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    failed = await fail(model_at("http://models.invalid/v1", retries=ONCE))
    assert failed.kind == "refused"
    assert "proxy" in failed.message
