"""The scripted model keeps the promises of a real one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from hermes.llm.events import Completed, ModelFailed, ReasoningPiece, Reply, TextPiece
from hermes.llm.model import Model, ModelRequest
from tests.llm.calling import REQUEST, collect, complete, fail
from tests.llm.scripted import ScriptedModel


async def test_replies_come_in_order_in_pieces_and_requests_are_kept() -> None:
    model = ScriptedModel([Reply("Hello!", reasoning="hm"), Reply("Bye")], piece=4)
    assert await collect(model) == [
        ReasoningPiece("hm"),
        TextPiece("Hell"),
        TextPiece("o!"),
        Completed(Reply("Hello!", reasoning="hm")),
    ]
    other = ModelRequest([{"role": "user", "content": "other"}])
    assert (await complete(model, other)).text == "Bye"
    assert model.requests == [REQUEST, other]


async def test_a_function_answers_by_what_it_was_asked() -> None:
    model: Model = ScriptedModel(lambda request: Reply(request.messages[-1]["content"].upper()))
    assert (await complete(model)).text == "HELLO?"


async def test_a_failure_comes_after_what_was_said_before_it() -> None:
    failed = ModelFailed("interrupted", "lost", retryable=True, partial=Reply("Hel"))
    assert await collect(ScriptedModel([failed])) == [TextPiece("Hel"), failed]


async def test_a_stream_waits_where_the_script_says_so() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([[TextPiece("Hel"), gate, TextPiece("lo"), Completed(Reply("Hello"))]])
    async with aclosing(model.stream(REQUEST)) as stream:
        assert await anext(stream) == TextPiece("Hel")
        waiting = asyncio.create_task(anext(stream))
        done, _ = await asyncio.wait({waiting}, timeout=0.01)
        assert not done
        gate.set()
        assert await waiting == TextPiece("lo")


async def test_a_script_at_its_end_fails() -> None:
    failed = await fail(ScriptedModel([]))
    assert (failed.kind, failed.retryable) == ("bad_request", False)


async def test_a_script_that_breaks_the_promise_of_a_last_event_is_refused() -> None:
    with pytest.raises(ValueError, match="last step"):
        await collect(ScriptedModel([[TextPiece("Hel")]]))
