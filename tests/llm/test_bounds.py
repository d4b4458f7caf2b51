"""Limits of a reply, whatever the endpoint sends: characters, silence, time."""

from __future__ import annotations

import json

import pytest

from hermes.llm.connection import Timeouts
from hermes.llm.events import Completed, ModelFailed
from hermes.llm.openai_compatible import ENDLESS_EVENT
from hermes.types import Json
from tests.llm.calling import collect, complete, fail, model_at
from tests.llm.loopback import Answer, LoopbackServer, chunk, says

COMMENT = ": still here\n\n"
ROLE = chunk({"role": "assistant", "content": ""})


def endless(piece: Json) -> Answer:
    """Return an answer with the piece repeated practically without end."""
    return Answer(chunks=[piece] * 20_000, ending="hang")


async def test_reply_without_an_end_is_cut_at_its_longest_and_the_connection_is_left() -> None:
    async with LoopbackServer([endless(chunk({"content": "word "}))]) as server:
        reply = await complete(model_at(server, longest_reply=1001))
    assert reply.text == "word " * 200 + "w"
    assert (reply.finish_reason, reply.cut_at) == ("length", 1001)


async def test_reply_of_just_the_longest_is_whole() -> None:
    async with LoopbackServer([says("x" * 1000)]) as server:
        reply = await complete(model_at(server, longest_reply=1000))
    assert (reply.text, reply.finish_reason, reply.cut_at) == ("x" * 1000, "stop", None)


async def test_answer_in_one_piece_is_cut_as_well() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "x" * 5000}, "finish_reason": "stop"}]}
    async with LoopbackServer([Answer(body=json.dumps(whole))]) as server:
        reply = await complete(model_at(server, longest_reply=1000))
    assert (len(reply.text), reply.cut_at) == (1000, 1000)


CALL = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "note", "arguments": "xxxx"}}]}
CALLS = {"tool_calls": [{"function": {"name": "note", "arguments": ""}}]}


@pytest.mark.parametrize("piece", [{"reasoning_content": "hm "}, CALL, CALLS])
async def test_thoughts_or_calls_without_an_end_are_a_failure_that_names_the_setting(piece: Json) -> None:
    async with LoopbackServer([endless(chunk(piece))]) as server:
        failed = await fail(model_at(server, longest_reply=1000))
    assert failed.kind == "bad_reply"
    assert "`model.longest_reply`" in failed.message


async def test_half_a_call_after_a_text_is_not_run_and_the_text_is_kept() -> None:
    async with LoopbackServer([Answer(chunks=[chunk({"content": "Noted."}), *[chunk(CALL)] * 2000])]) as server:
        events = await collect(model_at(server, longest_reply=1000))
    assert isinstance(events[-1], ModelFailed)
    assert events[-1].partial.text == "Noted."


@pytest.mark.parametrize("sign", [COMMENT, ROLE, 'data: {"choices": []}\n\n'])
async def test_signs_of_life_without_a_word_are_a_silence(sign: Json) -> None:
    quiet = Timeouts(idle=60, silence=1.0)
    answer = Answer(chunks=[chunk({"content": "well"}), *[sign] * 5000], pause=0.01, ending="hang")
    async with LoopbackServer([answer]) as server:
        failed = await fail(model_at(server, timeouts=quiet))
    assert failed.kind == "timeout"
    assert "no word of a reply for 1 s (`model.silence`)" in failed.message
    assert failed.partial.text == "well"


async def test_words_between_signs_of_life_keep_a_reply_going() -> None:
    words = [part for number in range(7) for part in (COMMENT, chunk({"content": f"{number} "}), COMMENT)]
    answer = Answer(chunks=[*words, chunk({}, "stop")], pause=0.25)  # longer than the silence
    async with LoopbackServer([answer]) as server:
        events = await collect(model_at(server, timeouts=Timeouts(idle=60, silence=4.5)))
    assert isinstance(events[-1], Completed)


async def test_reply_that_drips_for_ever_ends_with_its_total_time() -> None:
    answer = Answer(chunks=[chunk({"content": "x"})] * 5000, pause=0.01, ending="hang")
    async with LoopbackServer([answer]) as server:
        failed = await fail(model_at(server, timeouts=Timeouts(total=2.0)))
    assert failed.kind == "timeout"
    assert "took longer than 2 s for a reply (`model.total_timeout`)" in failed.message
    assert failed.partial.text


async def test_event_without_an_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.llm.openai_compatible.MAX_EVENT_BYTES", 10_000)
    for piece in ("data: x" * 100, "data: x\n" * 100):
        async with LoopbackServer([endless(piece)]) as server:
            assert ENDLESS_EVENT in (await fail(model_at(server))).message
