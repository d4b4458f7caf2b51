"""Whatever the window and the messages, the session answers, and it does not compress without need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hermes.agent.agent import Agent, Policy
from hermes.agent.compress import compressor_of
from hermes.agent.tools import Tool, ToolResult
from hermes.compression.compressor import Request
from hermes.events import Failed, Notice, Replied
from hermes.llm.events import Reply
from hermes.llm.tokens import estimate_request, estimate_tokens
from hermes.store.store import Store
from hermes.types import Json, ToolCall, ToolSpec
from tests.compression.agents import make_agent, take_turn
from tests.compression.checks import check_lines, check_one_at_a_time, check_store
from tests.compression.conftest import ReadLog
from tests.compression.conversations import said
from tests.compression.strict_model import questions, strict_model, summaries

CJK = "我住在瓦莱塔，收集马耳他的邮票，每张大约三欧元。"
LATIN = "I live in Valletta and collect stamps from Malta, about three euros each. "


def text_of(tokens: int, filler: str) -> str:
    """Return about `tokens` tokens of `filler`."""
    each = len(filler) if not filler.isascii() else len(filler) // 4
    return filler * max(1, tokens // each)


@pytest.mark.contract("3.6", "3.8", "3.13")
@pytest.mark.parametrize("filler", [LATIN, CJK], ids=["latin", "cjk"])
@pytest.mark.parametrize("window", [2_000, 8_000, 128_000])
async def test_conversation_of_many_windows_always_answers(
    store: Store, read_log: ReadLog, window: int, filler: str
) -> None:
    session_id = (await store.create_session("test")).id
    model = strict_model(window)
    agent = make_agent(store, session_id, model)
    turns = 40
    for number in range(turns):
        events = await take_turn(agent, f"{number}: {text_of(window // 10, filler)}")
        assert isinstance(events[-1], Replied), events[-1]
        assert f"{number}: " in questions(model)[-1].messages[-1]["content"]
    await agent.close()
    rows = (await store.view(session_id)).epoch
    assert 3 <= rows <= turns // 2
    assert len(read_log()) == 2 * rows
    assert check_lines(read_log()) + check_one_at_a_time(read_log()) == []
    assert await check_store(store, await said(store, session_id), read_log()) == []
    assert all(estimate_request(request.messages) <= window * 0.75 for request in questions(model))


@pytest.mark.contract("3.6", "3.8")
@pytest.mark.parametrize("filler", [LATIN, CJK], ids=["latin", "cjk"])
@pytest.mark.parametrize("window", [2_000, 8_000, 128_000])
async def test_message_larger_than_the_window_is_answered(store: Store, window: int, filler: str) -> None:
    session_id = (await store.create_session("test")).id
    model = strict_model(window)
    agent = make_agent(store, session_id, model)
    for text in ("hello", text_of(window * 2, filler), "and now?"):
        assert isinstance((await take_turn(agent, text))[-1], Replied)
    await agent.close()
    assert await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.8")
async def test_message_over_the_budget_stays_whole_while_the_window_allows_it(store: Store) -> None:
    session_id = (await store.create_session("test")).id
    model = strict_model(8_000)
    agent = make_agent(store, session_id, model)
    for number in range(6):
        await take_turn(agent, f"{number}: {text_of(500, LATIN)}")
    long = f"read this: {text_of(4_500, LATIN)}"
    assert isinstance((await take_turn(agent, long))[-1], Replied)
    assert questions(model)[-1].messages[-1]["content"] == long
    assert (await store.view(session_id)).epoch == 1
    await agent.close()


@pytest.mark.contract("3.8")
async def test_huge_first_message_yields_before_the_last_turns_do(store: Store) -> None:
    session_id = (await store.create_session("test")).id
    model = strict_model(8_000)
    agent = make_agent(store, session_id, model)
    assert isinstance((await take_turn(agent, f"first: {text_of(3_400, LATIN)}"))[-1], Replied)
    for number in range(8):
        assert isinstance((await take_turn(agent, f"{number}: {text_of(250, LATIN)}"))[-1], Replied)
    await agent.close()
    view = await store.view(session_id)
    assert view.head == ()
    kept = [message.content or "" for message in view.tail if message.role == "user"]
    assert [text.split(":")[0] for text in kept][-4:] == ["4", "5", "6", "7"]


def counting_tool(_: Agent) -> list[Tool]:
    async def run(_: Mapping[str, Json]) -> ToolResult:
        return ToolResult(text_of(100, LATIN))

    return [Tool(ToolSpec("look", "Looks.", {"type": "object", "properties": {}}), run)]


@pytest.mark.contract("3.8")
async def test_five_hundred_tool_calls_in_one_turn_keep_the_question_and_end_with_a_reply(
    store: Store, read_log: ReadLog
) -> None:
    session_id = (await store.create_session("test")).id
    calls = [Reply(tool_calls=(ToolCall(f"c{number}", "look", "{}"),)) for number in range(500)]
    model = strict_model(8_000, replies=calls)
    policy = Policy(review_every=0, max_steps=501, max_requests=502)
    agent = make_agent(store, session_id, model, policy=policy, tools=counting_tool)
    events = await take_turn(agent, "look five hundred times")
    await agent.close()
    assert isinstance(events[-1], Replied)
    asked = questions(model)
    assert len(asked) == 501
    for request in asked:
        assert sum(message["content"] == "look five hundred times" for message in request.messages) == 1
        called = [call["id"] for m in request.messages for call in m.get("tool_calls", ())]
        answered = [message["tool_call_id"] for message in request.messages if message["role"] == "tool"]
        assert called == answered
    compressed = (await store.view(session_id)).epoch
    assert 10 <= compressed <= 60
    assert sum(isinstance(event, Notice) for event in events) == compressed
    assert check_lines(read_log()) == []


@pytest.mark.contract("3.13")
async def test_long_question_does_not_make_every_step_of_its_turn_compress(store: Store) -> None:
    session_id = (await store.create_session("test")).id
    steps = 30
    calls = [Reply(tool_calls=(ToolCall(f"c{number}", "look", "{}"),)) for number in range(steps)]
    model = strict_model(8_000, replies=calls)
    agent = make_agent(store, session_id, model, tools=counting_tool, policy=Policy(review_every=0, max_steps=60))
    events = await take_turn(agent, f"look at all this: {text_of(4_200, LATIN)}")
    await agent.close()
    assert isinstance(events[-1], Replied)
    assert (await store.view(session_id)).epoch <= steps // 3


@pytest.mark.contract("3.13", "P5")
@pytest.mark.parametrize("prompt", [3_400, 4_100])
async def test_prompt_larger_than_the_threshold_does_not_make_every_turn_compress(
    store: Store, tmp_path: Path, read_log: ReadLog, prompt: int
) -> None:
    (tmp_path / "SOUL.md").write_text(text_of(prompt, LATIN), encoding="utf-8")
    session_id = (await store.create_session("test")).id
    model = strict_model(6_000)
    agent = make_agent(store, session_id, model)
    turns = 60
    for number in range(turns):
        assert isinstance((await take_turn(agent, f"{number}: {text_of(60, LATIN)}"))[-1], Replied)
    await agent.close()
    assert len(summaries(model)) <= turns // 3
    assert len(read_log()) <= 2 * turns // 3


@pytest.mark.contract("3.6")
async def test_prompt_larger_than_the_window_fails_clearly_and_without_a_flood(
    store: Store, tmp_path: Path, read_log: ReadLog
) -> None:
    (tmp_path / "SOUL.md").write_text(text_of(4_500, LATIN), encoding="utf-8")
    session_id = (await store.create_session("test")).id
    agent = make_agent(store, session_id, strict_model(4_000))
    for number in range(8):
        [failed] = (await take_turn(agent, f"hello {number}"))[-1:]
        assert isinstance(failed, Failed)
        assert failed.kind == "context_too_long"
    await agent.close()
    assert len(read_log()) <= 4 * 8
    assert check_lines(read_log()) == []


@pytest.mark.contract("3.8")
@pytest.mark.parametrize("filler", [LATIN, CJK], ids=["latin", "cjk"])
async def test_message_too_large_for_the_window_causes_a_notice(store: Store, filler: str) -> None:
    session_id = (await store.create_session("test")).id
    agent = make_agent(store, session_id, strict_model(8_000))
    for text in ("hello", text_of(4_000, LATIN)):
        events = await take_turn(agent, text)
        assert not [event for event in events if isinstance(event, Notice) and "too long" in event.text]
    events = await take_turn(agent, text_of(16_000, filler))
    await agent.close()
    assert isinstance(events[-1], Replied)
    [told] = [event.text for event in events if isinstance(event, Notice)]
    assert "what you said last" in told
    assert "too long for the model, which sees a summary" in told


@pytest.mark.contract("3.6")
async def test_summary_in_pieces_never_asks_for_more_than_the_window(store: Store) -> None:
    """An overlong earlier summary, where the last one came from a larger model."""
    window, session_id = 8_000, (await store.create_session("test")).id
    roomy = make_agent(store, session_id, strict_model(64_000, summary=lambda: Reply(text_of(3_500, LATIN))))
    for number in range(4):
        await take_turn(roomy, f"{number}: {text_of(6_000, LATIN)}")
    before = await compressor_of(roomy).compress(session_id)
    assert before.outcome == "done"
    assert estimate_tokens((await store.view(session_id)).summary or "") > 3_000
    for length in (1_500, 3_500, 25_000):
        model = strict_model(window, summary=lambda length=length: Reply(text_of(length, LATIN)))  # type: ignore[misc]
        agent = make_agent(store, session_id, model)
        await take_turn(agent, text_of(9_000, LATIN))
        await compressor_of(agent).compress(session_id, Request(focus="x" * 100_000))
        await agent.close()
        asked = [estimate_request(request.messages) + (request.max_tokens or 0) for request in summaries(model)]
        assert asked
        assert max(asked) <= window
