"""Requests to a model: errors of endpoints, and their consequences."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from hermes.memory_server.db.database import Database
from hermes.types import ToolSpec
from tests.llm.loopback import Answer, LoopbackServer, fails, says
from tests.memory_server.modelling import QUESTION, SCHEMA, ask, door_to, model_of, rows, workspace_id

SEARCH = ToolSpec("search", "Find messages.", {"type": "object", "properties": {"query": {"type": "string"}}})
USAGE = {"prompt_tokens": 12, "completion_tokens": 3}


@pytest.mark.contract("9.3")
async def test_an_answer_is_counted_with_its_tokens(database: Database) -> None:
    async with LoopbackServer([says("It is line 2.", usage=USAGE)]) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database))
    assert (answer.text, answer.failure) == ("It is line 2.", None)
    [row] = await rows(database)
    assert (row.purpose, row.outcome, row.prompt_tokens, row.completion_tokens) == ("choice", "ok", 12, 3)


@pytest.mark.parametrize(
    "text",
    [
        '{"line": 2}',
        'Sure!\n```json\n{"line": 2}\n```\nAnything else?',
        'The answer is {"line": 2, } as you see.',
        '{"line": 2, "why": "the second',
        '<think>{"line": 7}? No.</think> {"line": 2}',
        '[1] says so: {"line": 2}',
    ],
)
async def test_json_is_read_out_of_what_models_put_around_it(database: Database, text: str) -> None:
    async with LoopbackServer([says(text)]) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database), schema=SCHEMA)
    assert answer.failure is None
    assert answer.parsed["line"] == 2
    assert len(server.requests) == 1


async def test_an_answer_that_breaks_the_schema_is_asked_for_once_more(database: Database) -> None:
    script = [says("line two"), says('{"line": 2}')]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database), schema=SCHEMA)
    assert answer.parsed == {"line": 2}
    assert [row.outcome for row in await rows(database)] == ["ok", "ok"]
    assert "there is no JSON in it" in server.requests[1].body["messages"][-1]["content"]


async def test_garbage_twice_is_a_failure(database: Database) -> None:
    async with LoopbackServer(then=says("%&/ line two")) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database), schema=SCHEMA)
    assert answer.failure is not None
    assert answer.failure.kind == "invalid"
    assert not answer.failure.may_pass
    assert len(server.requests) == 2


async def test_an_endpoint_without_tools_is_asked_in_text(database: Database) -> None:
    refusal = fails(400, "loop-1 does not support tools")
    script = [refusal, refusal, says('I look.\n{"name": "search", "arguments": {"query": "cat"}}'), says("A cat.")]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        answer = await ask(model, tools=[SEARCH])
        [call] = answer.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "Said: a cat"}
        talk = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call.to_wire()]}, result]
        final = await ask(model, tools=[SEARCH], messages=talk)
    assert (call.name, call.arguments) == ("search", '{"query": "cat"}')
    assert final.text == "A cat."
    sent = server.requests[3].body  # the first was refused with and without `stream_options`
    assert "tools" not in sent
    assert [one["role"] for one in sent["messages"]] == ["system", "user", "assistant", "user"]


async def test_an_endpoint_without_response_format_is_told_in_the_prompt(database: Database) -> None:
    refusal = fails(400, "response_format is not supported")
    script = [refusal, refusal, says('{"line": 1}'), says('{"line": 2}')]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        first, second = await ask(model, schema=SCHEMA), await ask(model, schema=SCHEMA)
    assert (first.parsed, second.parsed) == ({"line": 1}, {"line": 2})
    assert ["response_format" in one.body for one in server.requests] == [True, True, False, False]
    assert '"line"' in server.requests[3].body["messages"][0]["content"]


async def test_thoughts_are_no_part_of_the_text(database: Database) -> None:
    script = [says("<think>a or b</think>b"), says("c", reasoning="a, b or c")]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        assert [(await ask(model)).text for _ in range(2)] == ["b", "c"]


async def test_a_model_that_thinks_too_long_gets_more_tokens(database: Database) -> None:
    script = [says("", reasoning="hm " * 50, finish_reason="length"), says("b", reasoning="hm")]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database))
    assert answer.text == "b"
    assert [one.body["max_tokens"] for one in server.requests] == [100, 2148]


async def test_a_cut_answer_says_so_and_keeps_its_text(database: Database) -> None:
    script = [says("The first line and", finish_reason="length")]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database))
    assert answer.failure is not None
    assert (answer.text, answer.failure.kind) == ("The first line and", "truncated")


async def test_a_stream_gives_pieces_and_then_the_answer(database: Database) -> None:
    async with LoopbackServer([says("<think>hm</think>one two three")]) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        got = [one async for one in model.stream("dialectic", QUESTION, max_tokens=50, deadline_seconds=20)]
    assert "".join(one for one in got if isinstance(one, str)) == "one two three"
    assert not isinstance(got[-1], str)
    assert got[-1].text == "one two three"
    assert len(got) > 3


async def test_a_long_question_is_cut_to_a_window_of_2k(database: Database) -> None:
    evidence = "\n".join(f"[{number}] a line of evidence that is worth less and less" for number in range(1000))
    talk = [{"role": "system", "content": "Cite."}, {"role": "user", "content": f"What is worth most?\n{evidence}"}]
    async with LoopbackServer([says("[0]")]) as server, door_to(database, server, window=2048) as door:
        answer = await ask(await model_of(door, database), messages=talk, max_tokens=8192)
    assert answer.text == "[0]"
    sent = server.requests[0].body
    assert sent["max_tokens"] < 1000
    assert sum(len(one["content"]) for one in sent["messages"]) < 4 * 1100
    assert sent["messages"][1]["content"].startswith("What is worth most?\n[0]")


async def test_a_request_that_is_too_long_all_the_same_is_made_shorter(database: Database) -> None:
    script = [fails(400, "maximum context length is 1024 tokens", code="context_length_exceeded"), says("a")]
    talk = [{"role": "user", "content": "word " * 20_000}]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database), messages=talk)
    assert answer.text == "a"
    first, second = (len(one.body["messages"][0]["content"]) for one in server.requests)
    assert second < first


async def test_an_answer_after_the_deadline_is_a_time_out_that_is_counted(database: Database) -> None:
    async with LoopbackServer([says("one", ending="hang")]) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database), deadline_seconds=0.3)
    assert answer.failure is not None
    assert answer.failure.kind == "timeout"
    [row] = await rows(database)
    assert row.outcome == "unfinished"
    assert row.prompt_tokens > 0


async def test_an_answer_that_is_held_back_is_a_refusal(database: Database) -> None:
    script = [says("", finish_reason="content_filter")]
    async with LoopbackServer(script) as server, door_to(database, server) as door:
        answer = await ask(await model_of(door, database))
    assert answer.failure is not None
    assert answer.failure.kind == "refusal"


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        (fails(401, "no such key"), "auth", "check the key"),
        (fails(404, "model not found", code="model_not_found"), "bad_request", "check the model's name"),
        (fails(400, "this model is not a chat model"), "bad_request", "not a chat model"),
        (Answer(body="<html><title>Hello</title></html>"), "bad_reply", "check the URL"),
    ],
)
async def test_what_is_configured_wrongly_is_said(database: Database, answer: Answer, kind: str, word: str) -> None:
    async with LoopbackServer(then=answer) as server, door_to(database, server) as door:
        found = await ask(await model_of(door, database))
    assert found.failure is not None
    assert found.failure.kind == kind
    assert word in found.failure.reason


async def test_a_folder_without_settings_has_no_model(database: Database, tmp_path: Path) -> None:
    async with LoopbackServer() as server, door_to(database, server) as door:
        (tmp_path / "model.json").unlink()
        assert await door.of(1) is None


RIGHT = [says('{"line": 2}'), says('{"line": 0}')]
FAITHFUL = "Tove said on 14 May that her boat is moored at pier 9 [2]."


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ([*RIGHT, says(FAITHFUL)], "compose"),
        ([*RIGHT, says("Tove said on 15 May that her boat is at pier 9 [2].")], "point"),
        ([*RIGHT, says(FAITHFUL.replace(" [2]", ""))], "point"),
        ([says('{"line": 3}'), says('{"line": 0}'), says(FAITHFUL)], "point"),
    ],
    ids=["faithful", "wrong date", "no citation", "wrong line"],
)
@pytest.mark.contract("9.3")
async def test_what_a_model_is_trusted_with_is_tested_once(
    database: Database, script: list[Answer], found: str
) -> None:
    async with LoopbackServer(script) as server:
        for _ in range(2):
            async with door_to(database, server, model_class=None) as door:
                model = await model_of(door, database)
                assert model.model_class == "point", "until it is known"
                testing = model.endpoint.testing
                assert testing is not None
                await testing
                assert model.model_class == found
    assert len(server.requests) == 3, "the second start knows it"
    assert {(row.purpose, row.workspace_id) for row in await rows(database)} == {("self_test", 0)}


async def test_a_model_that_cannot_be_asked_is_tested_later(database: Database) -> None:
    script = [fails(500, "no"), *RIGHT, says(FAITHFUL)]
    async with LoopbackServer(script) as server, door_to(database, server, model_class=None) as door:
        for expected in (None, "compose"):
            model = await model_of(door, database)
            assert model.endpoint.testing is not None
            await model.endpoint.testing
            assert model.endpoint.tested == expected


async def test_a_cap_that_is_reached_before_the_repair_is_a_cap(database: Database) -> None:
    async with LoopbackServer(then=says("line two")) as server, door_to(database, server, cap_calls=1) as door:
        answer = await ask(await model_of(door, database), schema=SCHEMA)
    assert answer.failure is not None
    assert answer.failure.kind == "cap"
    assert len(server.requests) == 1


async def test_a_stream_that_hangs_ends_at_its_deadline_and_keeps_what_came(database: Database) -> None:
    async with LoopbackServer([says("one two", ending="hang")]) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        got = [one async for one in model.stream("dialectic", QUESTION, max_tokens=50, deadline_seconds=0.5)]
    assert "".join(one for one in got if isinstance(one, str)) == "one two"
    assert not isinstance(got[-1], str)
    assert got[-1].failure is not None
    assert got[-1].failure.kind == "timeout"


async def test_a_stream_that_nobody_reads_to_its_end_is_counted(database: Database) -> None:
    async with LoopbackServer([says("one two three four")]) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        async with aclosing(model.stream("dialectic", QUESTION, max_tokens=50, deadline_seconds=20)) as pieces:
            await anext(pieces)
    [row] = await rows(database)
    assert row.outcome == "unfinished"


async def test_a_stream_that_is_too_long_is_sent_again_shorter(database: Database) -> None:
    too_long = fails(400, "maximum context length is 1024 tokens", code="context_length_exceeded")
    async with LoopbackServer([too_long, says("a")]) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        talk = [{"role": "user", "content": "word " * 20_000}]
        got = [one async for one in model.stream("dialectic", talk, max_tokens=50, deadline_seconds=20)]
    assert got[0] == "a"
    assert len(server.requests) == 2


@pytest.mark.parametrize("piece", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>a or b</think>b", "b"),
        ("<THINKING>a</thinking> 1 < 2", "1 < 2"),
        ("one <reasoning>hm</reasoning>two", "one two"),
        ("<think>without an end", ""),
        ("a <b> c", "a <b> c"),
    ],
)
async def test_thoughts_are_left_out_however_a_text_is_cut(
    database: Database, text: str, shown: str, piece: int
) -> None:
    script = says(text, piece=piece)
    async with LoopbackServer(then=script) as server, door_to(database, server) as door:
        model = await model_of(door, database)
        got = [one async for one in model.stream("dialectic", QUESTION, max_tokens=50, deadline_seconds=20)]
        whole = await ask(model)
    assert "".join(one for one in got if isinstance(one, str)) == shown
    assert whole.text == shown


async def test_thoughts_whose_beginning_an_endpoint_left_out_are_no_answer(database: Database) -> None:
    async with LoopbackServer([says("a or b?\n</think>\n\nb")]) as server, door_to(database, server) as door:
        assert (await ask(await model_of(door, database))).text == "b"


async def test_each_workspace_asks_its_own_model(database: Database) -> None:
    async with LoopbackServer(then=says("here")) as here, LoopbackServer(then=says("there")) as there:
        spaces = {"shop": {"url": there.base_url, "name": "loop-2"}, "quiet": {"source": "off"}}
        async with door_to(database, here, workspaces=spaces) as door:
            assert (await ask(await model_of(door, database))).text == "here"
            assert (await ask(await model_of(door, database, "shop"))).text == "there"
            assert await door.of(await workspace_id(database, "quiet")) is None
    assert [one.body["model"] for one in there.requests] == ["loop-2"]
