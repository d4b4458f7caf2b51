"""Cancelling a request at any moment and in any way: the next request is still answered."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from hermes.agent.loop import unless_stopped
from hermes.llm.connection import Retries, Timeouts
from hermes.llm.events import Completed, ModelEvent
from hermes.llm.openai_compatible import OpenAICompatible
from tests.llm.calling import REQUEST, model_at
from tests.llm.loopback import Answer, Ending, LoopbackServer, says
from tests.scale import scale

pytestmark = [pytest.mark.contract("2.6"), pytest.mark.timeout(600)]

HELLO = says("Hello!")
MAX_REQUEST_STEPS = 90
"""Event loop steps within which a request of this file is answered, with a margin."""
SOCKETS = Path("/proc/self/fd")


async def listen(model: OpenAICompatible) -> list[ModelEvent]:
    async with aclosing(model.stream(REQUEST)) as stream:
        return [event async for event in stream]


async def check_next(model: OpenAICompatible) -> None:
    """Send another request. On a connection that httpx considers busy it would hang."""
    last = (await listen(model))[-1]
    assert isinstance(last, Completed), last
    assert last.reply.text == "Hello!"


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel_task(model: OpenAICompatible, count: int) -> None:
    """Cancel a task, as Ctrl-C does and a new message does to a title in the making."""
    asking = asyncio.create_task(listen(model))
    await steps(count)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking


async def cancel_twice(model: OpenAICompatible, count: int) -> None:
    """Cancel a task twice, as when a process ends during a stop."""
    asking = asyncio.create_task(listen(model))
    await steps(count)
    asking.cancel()
    await steps(count % 4)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking


async def stop(model: OpenAICompatible, count: int) -> None:
    """Stop the task, as `/stop` does."""
    stopped = asyncio.Event()
    asking = asyncio.create_task(unless_stopped(listen(model), stopped))
    await steps(count)
    stopped.set()
    await asking


async def leave(model: OpenAICompatible, count: int) -> None:
    """Stop reading after part of the reply."""
    async with aclosing(model.stream(REQUEST)) as stream:
        for _ in range(count % 5):
            await anext(stream, None)


WAYS = (cancel_task, cancel_twice, stop, leave)


def open_sockets() -> int:
    found = (str(entry.readlink()) for entry in SOCKETS.iterdir() if entry.is_symlink())
    return sum(name.startswith("socket:") for name in found)


@pytest.mark.stress
async def test_request_after_one_cancelled_at_any_moment_is_answered() -> None:
    chance = random.Random(65)
    async with LoopbackServer(then=HELLO) as server:
        model = model_at(server, timeouts=Timeouts(first_byte=20), retries=Retries(max_retries=0))
        for number in range(scale(200, 1_000)):
            await WAYS[number % len(WAYS)](model, chance.randrange(MAX_REQUEST_STEPS))
            await check_next(model)
        await model.close()


@pytest.mark.stress
@pytest.mark.skipif(not SOCKETS.is_dir(), reason="open files are counted in /proc")
async def test_cancelled_requests_leave_no_connection_open() -> None:
    async with LoopbackServer(then=HELLO) as server:
        model = model_at(server, timeouts=Timeouts(first_byte=20), retries=Retries(max_retries=0))
        await check_next(model)
        before = open_sockets()
        for count in range(scale(MAX_REQUEST_STEPS, 1_000)):
            await cancel_task(model, count % MAX_REQUEST_STEPS)
        await check_next(model)
        while open_sockets() > before:  # the server closes its side a moment later
            await steps(1)
        await model.close()


@pytest.mark.parametrize("ending", ["hang", "reset", "cut"])
async def test_request_after_a_stream_that_broke_off_is_answered(ending: Ending) -> None:
    broken = says("Hel", ending=ending)
    async with LoopbackServer([broken, HELLO, broken, HELLO]) as server:
        model = model_at(server, timeouts=Timeouts(idle=0.05), retries=Retries(max_retries=0))
        for _ in range(2):
            assert not isinstance((await listen(model))[-1], Completed)
            await check_next(model)
        await model.close()


async def test_connection_whose_answer_was_read_to_its_end_is_used_again() -> None:
    async with LoopbackServer(then=HELLO) as server:
        model = model_at(server)
        for _ in range(5):
            await check_next(model)
        assert server.connections == 1
        await model.close()


async def test_request_after_cancelled_reading_of_a_finished_reply_is_answered() -> None:
    """The reply has arrived, but not the end of its body; the wait for that is short."""
    unended = Answer(chunks=[*HELLO.chunks, "data: [DONE]\n\n"], ending="hang")
    async with LoopbackServer([unended, HELLO]) as server:
        model = model_at(server)
        await check_next(model)
        await check_next(model)
        assert server.connections == 2
        await model.close()
