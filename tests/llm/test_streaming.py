"""Replies from a real endpoint over sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from hermes.llm.events import Completed, ModelEvent, Reply, TextPiece, Usage
from hermes.llm.model import ModelRequest
from hermes.types import ToolCall, ToolSpec
from tests.llm.calling import KEY, REQUEST, collect, complete, fail, model_at
from tests.llm.loopback import Answer, LoopbackServer, chunk, fails, says

pytestmark = pytest.mark.contract("10.5")


async def test_a_reply_comes_as_text_reasoning_tool_calls_and_usage() -> None:
    calls = [("read", '{"path": "a.txt"}'), ("search", '{"query": "Straße 😀"}')]
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 8}}
    async with LoopbackServer([says("Grüß dich 😀", reasoning="hm, so", calls=calls, usage=usage)]) as server:
        reply = await complete(model_at(server))
    assert reply == Reply(
        text="Grüß dich 😀",
        reasoning="hm, so",
        tool_calls=(ToolCall("call-0", *calls[0]), ToolCall("call-1", *calls[1])),
        finish_reason="tool_calls",
        usage=Usage(11, 7, 8),
        model="loop-1",
    )


async def test_the_request_is_what_the_endpoint_gets() -> None:
    tool = ToolSpec("read", "Reads a file.", {"type": "object"})
    request = ModelRequest([{"role": "user", "content": "Grüße \ud83d"}], (tool,), max_tokens=9)
    async with LoopbackServer([says("ok")]) as server:
        await complete(model_at(server), request)
    received = server.requests[0]
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.body == {
        "model": "loop-1",
        "messages": [{"role": "user", "content": "Grüße ?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "Reads a file.", "parameters": {"type": "object"}},
            }
        ],
        "max_tokens": 9,
    }


async def test_nothing_is_sent_for_what_was_not_asked_for() -> None:
    async with LoopbackServer([says("ok")]) as server:
        await complete(model_at(server, api_key=None))
    assert set(server.requests[0].body) == {"model", "messages", "stream", "stream_options"}
    assert "authorization" not in server.requests[0].headers


async def test_text_is_given_while_the_endpoint_still_speaks() -> None:
    async with LoopbackServer([Answer(chunks=[chunk({"content": "Hel"})], ending="hang")]) as server:
        model = model_at(server)
        async with aclosing(model.stream(REQUEST)) as stream:
            assert await anext(stream) == TextPiece("Hel")
        await model.close()


async def test_one_connection_serves_call_after_call() -> None:
    async with LoopbackServer([says("one"), fails(401), says("two", usage={"prompt_tokens": 1}), says("3")]) as server:
        model = model_at(server)
        for _ in range(4):
            async with aclosing(model.stream(REQUEST)) as stream:
                assert [event async for event in stream]
        await model.close()
    assert (len(server.requests), server.connections) == (4, 1)


async def test_a_model_can_be_used_again_after_it_was_closed() -> None:
    async with LoopbackServer([says("one"), says("two")]) as server:
        model = model_at(server)
        assert [(await complete(model)).text, (await complete(model)).text] == ["one", "two"]


async def test_calls_side_by_side_do_not_mix() -> None:
    async with LoopbackServer(then=Answer(echo=True)) as server:
        requests = [ModelRequest([{"role": "user", "content": f"I am {number}"}]) for number in range(8)]
        model = model_at(server)
        replies = await asyncio.gather(*(_read(model.stream(request)) for request in requests))
        await model.close()
    assert replies == [f"I am {number}" for number in range(8)]


async def _read(stream: AsyncGenerator[ModelEvent, None]) -> str:
    events = [event async for event in stream]
    assert isinstance(events[-1], Completed)
    return events[-1].reply.text


@pytest.mark.parametrize("status", [400, 422])
async def test_usage_is_no_longer_asked_for_once_an_endpoint_refused_it(status: int) -> None:
    async with LoopbackServer([fails(status, "Extra inputs are not permitted"), says("one"), says("two")]) as server:
        model = model_at(server)
        assert (await complete(model)).text == "one"
        assert (await complete(model)).text == "two"
    assert ["stream_options" in request.body for request in server.requests] == [True, False, False]


async def test_a_request_refused_for_another_reason_is_retried_once_and_usage_stays_on() -> None:
    async with LoopbackServer([fails(400, "bad schema"), fails(400, "bad schema"), says("ok")]) as server:
        model = model_at(server)
        failed = await fail(model)
        assert (failed.kind, failed.retryable) == ("bad_request", False)
        assert "bad schema" in failed.message
        await complete(model)
    assert ["stream_options" in request.body for request in server.requests] == [True, False, True]


async def test_an_endpoint_that_wants_other_fields_gets_them() -> None:
    refusal = fails(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    async with LoopbackServer([refusal, says("ok")]) as server:
        await complete(model_at(server), ModelRequest(REQUEST.messages, max_tokens=9))
    last = server.requests[-1].body
    assert (last["max_completion_tokens"], "max_tokens" in last) == (9, False)
    assert "stream_options" in last


async def test_an_answer_that_is_not_streamed_is_taken() -> None:
    body = {"model": "m", "choices": [{"message": {"content": "All at once."}, "finish_reason": "stop"}]}
    async with LoopbackServer([Answer(body=json.dumps(body))]) as server:
        events = await collect(model_at(server))
    assert events == [TextPiece("All at once."), Completed(Reply("All at once.", finish_reason="stop", model="m"))]


async def test_an_unknown_reason_to_finish_is_kept() -> None:
    async with LoopbackServer([says("ok", finish_reason="tired")]) as server:
        assert (await complete(model_at(server))).finish_reason == "tired"


async def test_a_stream_that_ends_in_done_needs_no_reason_to_finish() -> None:
    async with LoopbackServer([Answer(chunks=[chunk({"content": "ok"})])]) as server:
        reply = await complete(model_at(server))
    assert (reply.text, reply.finish_reason) == ("ok", None)


@pytest.mark.parametrize("ending", ["cut", "reset"])
@pytest.mark.parametrize("last", ["", 'data: {"usage": {"prom'])
async def test_a_connection_lost_after_the_model_finished_takes_nothing_away(ending: str, last: str) -> None:
    chunks = [chunk({"content": "ok"}), chunk({}, "stop"), *([last] if last else [])]
    async with LoopbackServer([Answer.from_json({"chunks": chunks, "ending": ending})]) as server:
        assert (await complete(model_at(server))).text == "ok"


async def test_comments_and_pings_between_chunks_are_no_text() -> None:
    chunks = [
        ": OPENROUTER PROCESSING\n\n",
        'event: ping\ndata: {"type": "ping"}\n\n',
        chunk({"content": "ok"}, "stop"),
    ]
    async with LoopbackServer([Answer(chunks=chunks)]) as server:
        assert (await complete(model_at(server))).text == "ok"


async def test_a_consumer_that_is_cancelled_hangs_up() -> None:
    said = asyncio.Event()

    async def consume() -> None:
        async with aclosing(model.stream(REQUEST)) as stream:
            async for _ in stream:
                said.set()

    async with LoopbackServer([says("Hello", ending="hang")]) as server:
        model = model_at(server)
        task = asyncio.create_task(consume())
        await said.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.hung_up.wait(), 60)
        await model.close()


async def test_a_consumer_that_is_cancelled_before_the_first_byte_hangs_up() -> None:
    async with LoopbackServer([says("Hello", delay=60)]) as server:
        model = model_at(server)
        task = asyncio.create_task(collect(model))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.hung_up.wait(), 60)
        await model.close()


async def test_a_consumer_that_stops_reading_hangs_up() -> None:
    async with LoopbackServer([says("Hello", ending="hang")]) as server:
        model = model_at(server)
        async with aclosing(model.stream(REQUEST)) as stream:
            await anext(stream)
        await asyncio.wait_for(server.hung_up.wait(), 60)
        await model.close()
