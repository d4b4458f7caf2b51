"""Limits of one reply in a turn: cuts are reported, and the text before them is kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hermes.agent.agent import Agent
from hermes.agent.tools import Tool, ToolResult
from hermes.events import Failed, Notice, Replied, ToolFinished
from hermes.llm.connection import Timeouts
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.store.store import Store
from hermes.types import ToolCall, ToolSpec
from tests.agent.agents import check_conversation, make_agent, spoken, stored, take_turn
from tests.llm.calling import model_at
from tests.llm.loopback import Answer, LoopbackServer, chunk
from tests.llm.scripted import ScriptedModel


def counting(ran: list[str]) -> list[Tool]:
    """Return a tool that counts its calls."""

    async def run(_: object) -> ToolResult:
        ran.append("")
        return ToolResult(f"ran {len(ran)}")

    return [Tool(ToolSpec("count", "Count.", {"type": "object", "properties": {}}), run)]


async def test_calls_beyond_the_limit_of_one_reply_are_not_run_and_that_is_reported(store: Store) -> None:
    calls = tuple(ToolCall(f"c{number}", "count", "{}") for number in range(2000))
    ran: list[str] = []
    model = ScriptedModel([Reply(tool_calls=calls), Reply("done")])
    session = await store.create_session("cli")
    agent = make_agent(store, session.id, model, tools=lambda _: counting(ran))
    seen = await take_turn(agent, "count")
    most = agent.policy.max_calls
    assert len(ran) == most
    assert [event for event in seen if isinstance(event, Notice) and "2,000 tool calls" in event.text]
    assert len([event for event in seen if isinstance(event, ToolFinished)]) == most
    check_conversation(model.requests[1].messages)
    told = model.requests[1].messages[-1]["content"]
    assert told.startswith(f"ran {most}\n[")
    assert "2,000 tool calls" in told


@pytest.mark.parametrize(
    "deep", ["[" * 200_000, '{"a":' * 20_000, '{"content": ' + "[" * 100_000 + "]" * 100_000 + "}"]
)
async def test_arguments_nested_too_deeply_are_reported_to_the_model(store: Store, deep: str) -> None:
    session = await store.create_session("cli")
    model = ScriptedModel([Reply(tool_calls=(ToolCall("c", "memory", deep),)), Reply("I see")])
    seen = await take_turn(make_agent(store, session.id, model), "note this")
    assert isinstance(seen[-1], Replied)
    [finished] = [event for event in seen if isinstance(event, ToolFinished)]
    assert not finished.ok
    assert "nested too deeply" in finished.result
    check_conversation(model.requests[1].messages)


@pytest.mark.contract("4.6")
async def test_turn_and_its_sub_agents_share_one_budget_of_requests(store: Store) -> None:
    many = tuple(ToolCall(f"c{number}", "delegate", '{"task": "search"}') for number in range(32))

    def answer(request: ModelRequest) -> Reply:
        if any(tool.name == "delegate" for tool in request.tools):
            return Reply("I ask around.", tool_calls=many)
        return Reply(tool_calls=(ToolCall("s", "session_search", '{"query": "x"}'),))

    model = ScriptedModel(answer)
    session = await store.create_session("cli")
    agent = make_agent(store, session.id, model)
    agent.policy = replace(agent.policy, max_requests=20)
    for turn in (1, 2):  # each turn has a budget of its own
        last = (await take_turn(agent, "what do they say?"))[-1]
        assert len(model.requests) == turn * 20
        assert isinstance(last, Failed)
        assert last.message == "the turn has used up its 20 model requests; `agent.max_requests` allows more"
    assert ("assistant", "I ask around.") in await spoken(store, session.id)


async def test_a_reply_that_was_cut_is_kept_and_reported(store: Store) -> None:
    endless = Answer(chunks=[chunk({"content": "word "})] * 20_000, ending="hang")
    async with LoopbackServer([endless]) as server:
        session = await store.create_session("cli")
        agent = make_agent(store, session.id, model_at(server, longest_reply=5000))
        seen = await take_turn(agent, "go on")
        await agent.model.close()
    last = seen[-1]
    assert isinstance(last, Replied)
    assert last.cut
    assert last.text == "word " * 1000
    said = [event.text for event in seen if isinstance(event, Notice)]
    assert said == ["The reply was cut off after 5,000 characters; `model.longest_reply` allows more."]
    assert (await stored(store, session.id))[-1].finish_reason == "length"


@pytest.mark.parametrize("reason", ["length", "stop"])
async def test_a_reply_that_the_model_itself_cut_is_reported(store: Store, reason: str) -> None:
    session = await store.create_session("cli")
    agent: Agent = make_agent(store, session.id, ScriptedModel([Reply("one, two", finish_reason=reason)]))
    seen = await take_turn(agent, "count")
    assert bool([event for event in seen if isinstance(event, Notice)]) is (reason == "length")
    assert isinstance(seen[-1], Replied)
    assert seen[-1].cut is (reason == "length")


async def test_text_before_a_silence_timeout_is_kept(store: Store) -> None:
    answer = Answer(chunks=[chunk({"content": "Once upon"}), *[": alive\n\n"] * 5000], pause=0.01, ending="hang")
    async with LoopbackServer([answer]) as server:
        session = await store.create_session("cli")
        agent = make_agent(store, session.id, model_at(server, timeouts=Timeouts(silence=1.0)))
        seen = await take_turn(agent, "a story")
        await agent.model.close()
    assert isinstance(seen[-1], Failed)
    assert "`model.silence`" in seen[-1].message
    assert await spoken(store, session.id) == [("user", "a story"), ("assistant", "Once upon")]
