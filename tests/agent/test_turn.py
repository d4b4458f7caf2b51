"""One turn: what is stored when, how it is stopped, and what remains when its consumer leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from hermes.agent.agent import Agent
from hermes.agent.context import INTERRUPTED_RESULT
from hermes.agent.loop import STOPPED_RESULT
from hermes.agent.tools import Tool, ToolResult
from hermes.agent.turn import run_turn
from hermes.events import Accepted, Failed, Replied, Stopped, TextDelta, ToolFinished, ToolStarted
from hermes.llm import events as model_events
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import estimate_request
from hermes.store.store import Store
from hermes.types import Draft, Json, ToolCall, ToolSpec
from tests.agent.agents import check_conversation, make_agent, notes_text, spoken, stored, take_turn
from tests.llm.calling import model_at
from tests.llm.loopback import LoopbackServer, says
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

HALF = [model_events.TextPiece("Once upon "), model_events.TextPiece("a time")]


class Gate:
    """A tool that waits until it is released, and counts its calls."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.runs = 0

    async def run(self, arguments: Mapping[str, Json]) -> ToolResult:
        self.runs += 1
        self.begun.set()
        await self.open.wait()
        return ToolResult("through")

    def tools(self, agent: Agent) -> list[Tool]:
        return [Tool(ToolSpec("gate", "Wait.", {"type": "object", "properties": {}}), self.run)]


def calls(*names: str) -> Reply:
    return Reply(text="let me see", tool_calls=tuple(ToolCall(f"c{n}", name, "{}") for n, name in enumerate(names)))


@pytest.fixture
async def session(store: Store) -> str:
    return (await store.create_session("cli")).id


async def next_turn_works(store: Store, session: str) -> list[dict[str, Json]]:
    """Check that another turn of the session gets a reply; return the messages that the model received."""
    model = ScriptedModel([Reply(text="here I am")])
    last = (await take_turn(make_agent(store, session, model), "still there?"))[-1]
    assert isinstance(last, Replied), last
    [request] = model.requests
    check_conversation(request.messages)
    return list(request.messages)


async def test_message_is_stored_before_the_model_is_asked(store: Store, session: str) -> None:
    async with aclosing(run_turn(make_agent(store, session, ScriptedModel([])), "hello", asyncio.Event())) as events:
        first = await anext(events)
        [message] = await stored(store, session)
        assert first == Accepted(session, message.id)
        assert (message.role, message.content) == ("user", "hello")


async def test_reply_is_stored_before_it_is_announced(store: Store, session: str) -> None:
    async with aclosing(
        run_turn(make_agent(store, session, ScriptedModel([Reply(text="hi")])), "hello", asyncio.Event())
    ) as events:
        async for event in events:
            if isinstance(event, Replied):
                assert (await stored(store, session))[-1].id == event.message_id
                assert event.text == "hi"


@pytest.mark.contract("2.6")
async def test_stop_while_the_reply_streams_keeps_what_was_said(store: Store, session: str) -> None:
    stop, never = asyncio.Event(), asyncio.Event()
    agent = make_agent(store, session, ScriptedModel([[*HALF, never, Completed(Reply(text="x"))]]))
    seen = []
    async with aclosing(run_turn(agent, "a story", stop)) as events:
        async for event in events:
            seen.append(event)
            if event == TextDelta("a time"):
                stop.set()
    assert seen[-1] == Stopped(session, "Once upon a time")
    said = (await stored(store, session))[-1]
    assert (said.role, said.content, said.finish_reason) == ("assistant", "Once upon a time", "stopped")
    assert {"role": "assistant", "content": "Once upon a time"} in await next_turn_works(store, session)


@pytest.mark.contract("2.6")
async def test_stop_before_the_first_token_leaves_the_message_alone(store: Store, session: str) -> None:
    stop, never = asyncio.Event(), asyncio.Event()
    asked = asyncio.Event()

    def hang(request: ModelRequest) -> ScriptedAnswer:
        asked.set()
        return [never, Completed(Reply(text="x"))]

    turn = asyncio.create_task(take_turn(make_agent(store, session, ScriptedModel(hang)), "hello", stop))
    await asked.wait()
    stop.set()
    assert (await turn)[-1] == Stopped(session, "")
    assert await spoken(store, session) == [("user", "hello")]
    await next_turn_works(store, session)


@pytest.mark.contract("2.6")
async def test_stop_that_came_before_the_turn_asks_no_model(store: Store, session: str) -> None:
    stop, model = asyncio.Event(), ScriptedModel([Reply(text="x")])
    stop.set()
    assert (await take_turn(make_agent(store, session, model), "hello", stop))[-1] == Stopped(session, "")
    assert model.requests == []
    assert await spoken(store, session) == [("user", "hello")]


@pytest.mark.contract("2.6")
async def test_stop_during_a_tool_gives_every_open_call_a_result_that_says_so(store: Store, session: str) -> None:
    stop, gate = asyncio.Event(), Gate()
    agent = make_agent(store, session, ScriptedModel([calls("gate", "gate")]), tools=gate.tools)
    turn = asyncio.create_task(take_turn(agent, "go", stop))
    await gate.begun.wait()
    stop.set()
    seen = await turn
    assert seen[-1] == Stopped(session, "let me see")
    assert [event.ok for event in seen if isinstance(event, ToolFinished)] == [False, False]
    assert gate.runs == 1
    results = [message for message in await stored(store, session) if message.role == "tool"]
    assert [(message.tool_call_id, message.content) for message in results] == [
        ("c0", STOPPED_RESULT),
        ("c1", STOPPED_RESULT),
    ]
    sent = await next_turn_works(store, session)
    assert [message["content"] for message in sent if message["role"] == "tool"] == [STOPPED_RESULT] * 2


@pytest.mark.contract("2.6")
async def test_call_that_a_crash_cut_off_is_reported_as_interrupted_and_not_run_again(
    store: Store, session: str
) -> None:
    note = '{"action": "add", "target": "memory", "content": "Ran by itself."}'
    cut_off = Draft("assistant", "noting", tool_calls=(ToolCall("c0", "memory", note), ToolCall("c1", "memory", note)))
    await store.append(session, Draft("user", "note it"), cut_off, Draft("tool", "Saved.", tool_call_id="c0"))
    before = await stored(store, session)
    sent = await next_turn_works(store, session)
    assert [message["content"] for message in sent if message["role"] == "tool"] == ["Saved.", INTERRUPTED_RESULT]
    after = await stored(store, session)
    assert after[: len(before)] == before
    assert [message.role for message in after[len(before) :]] == ["user", "assistant"]
    assert notes_text(store.db.path.parent) == ""


@pytest.mark.parametrize("leave", ["aclose", "cancel"])
@pytest.mark.contract("2.3")
async def test_an_abandoned_turn_hangs_up_and_releases_the_lane(store: Store, session: str, leave: str) -> None:
    async with LoopbackServer([says("Once upon a time", piece=12, ending="hang")]) as server:
        agent = make_agent(store, session, model_at(server))
        half = asyncio.Event()

        async def listen() -> None:
            async with aclosing(run_turn(agent, "a story", asyncio.Event())) as events:
                async for event in events:
                    if event == TextDelta("time"):
                        half.set()
                        if leave == "aclose":
                            return

        listening = asyncio.create_task(listen())
        await half.wait()
        if leave == "cancel":
            await asyncio.sleep(0)  # it listens again
            listening.cancel()
        [outcome] = await asyncio.gather(listening, return_exceptions=True)
        assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
        await asyncio.wait_for(server.hung_up.wait(), 60)
        await agent.close()
    assert (await stored(store, session))[0].content == "a story"
    holders = await store.read(lambda tx: tx.execute("SELECT owner FROM hermes_leases").fetchall())
    assert [row["owner"] for row in holders] == [None]
    await next_turn_works(store, session)


@pytest.mark.contract("2.3")
async def test_wait_for_a_lane_that_is_cancelled_at_any_moment_holds_nothing(store: Store, session: str) -> None:
    for patience in range(12):
        turn = asyncio.create_task(take_turn(make_agent(store, session, ScriptedModel([])), "hello"))
        for _ in range(patience):
            await asyncio.sleep(0)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        holders = await store.read(lambda tx: tx.execute("SELECT owner FROM hermes_leases").fetchall())
        assert [row["owner"] for row in holders if row["owner"]] == []
    await next_turn_works(store, session)


@pytest.mark.parametrize("steps", [1, 3])
async def test_endless_tool_calls_end_after_the_steps_that_are_allowed(store: Store, session: str, steps: int) -> None:
    gate = Gate()
    gate.open.set()
    model = ScriptedModel(lambda _: calls("gate"))
    seen = await take_turn(make_agent(store, session, model, tools=gate.tools, max_steps=steps), "go")
    last = seen[-1]
    assert isinstance(last, Failed)
    assert last.kind == "model"
    assert "agent.max_steps" in last.message
    assert gate.runs == steps
    assert [len(request.tools) for request in model.requests] == [1] * steps + [0]
    await next_turn_works(store, session)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (ToolCall("c", "frobnicate", "{}"), "There is no tool 'frobnicate'"),
        (ToolCall("c", "memory", '{"action": '), "not valid JSON"),
        (ToolCall("c", "memory", "[1]"), "must be a JSON object"),
        (ToolCall("c", "delegate", '{"job": "add"}'), "delegate needs task"),
        (ToolCall("c", "memory", '{"action": "dance", "target": "user"}'), "no action 'dance'"),
    ],
)
async def test_a_call_that_cannot_be_run_is_reported_to_the_model_and_the_turn_continues(
    store: Store, session: str, call: ToolCall, said: str
) -> None:
    model = ScriptedModel([Reply(tool_calls=(call,)), Reply(text="sorry")])
    seen = await take_turn(make_agent(store, session, model), "go")
    assert isinstance(seen[-1], Replied)
    [finished] = [event for event in seen if isinstance(event, ToolFinished)]
    assert said in finished.result
    assert not finished.ok
    check_conversation(model.requests[1].messages)
    assert said in model.requests[1].messages[-1]["content"]


async def test_tools_run_in_order_each_result_stored_before_the_next_begins(store: Store, session: str) -> None:
    gate = Gate()
    gate.open.set()
    agent = make_agent(store, session, ScriptedModel([calls("gate", "gate"), Reply(text="ok")]), tools=gate.tools)
    results_at_start = []
    async with aclosing(run_turn(agent, "go", asyncio.Event())) as events:
        async for event in events:
            if isinstance(event, ToolStarted):
                results_at_start.append(sum(m.role == "tool" for m in await stored(store, session)))
    assert results_at_start == [0, 1]


@pytest.mark.parametrize(
    "answer", [Reply(text=""), Reply(text="  \n"), Reply(text="<memory-context>leak</memory-context>")]
)
async def test_reply_without_words_is_a_failure_and_not_stored(
    store: Store, session: str, answer: ScriptedAnswer
) -> None:
    [*_, last] = await take_turn(make_agent(store, session, ScriptedModel([answer])), "hello")
    assert isinstance(last, Failed)
    assert await spoken(store, session) == [("user", "hello")]
    await next_turn_works(store, session)


async def test_home_that_cannot_be_read_fails_the_turn_and_not_the_conversation(store: Store, session: str) -> None:
    agent = make_agent(store, session, ScriptedModel([Reply(text="x")]))
    agent.soul_file.write_bytes(b"\xff\xfe not text")
    [accepted, last] = await take_turn(agent, "hello")
    assert isinstance(accepted, Accepted)
    assert isinstance(last, Failed)
    assert last.kind == "host"
    assert "SOUL.md" in last.message
    agent.soul_file.unlink()
    await next_turn_works(store, session)


async def test_a_request_says_how_many_tokens_it_was_counted_to_have(store: Store, session: str) -> None:
    model, gate = ScriptedModel([Reply(text="yes")]), Gate()
    await take_turn(make_agent(store, session, model, tools=gate.tools), "are you there?")
    [asked] = model.requests
    assert asked.tools
    assert asked.tokens == estimate_request(asked.messages, asked.tools)
