"""Turns with models that cannot use tools, or that write their calls as text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.agent import Agent
from hermes.agent.context import NOT_TOLD
from hermes.agent.loop import CALL_WITHOUT_TOOLS, NO_TOOLS
from hermes.agent.review import read_lines, review
from hermes.agent.tools import ToolVerdicts
from hermes.clock import SystemClock
from hermes.events import Failed, Notice, Replied, TextDelta, ToolFinished
from hermes.fence import TAG
from hermes.llm.discover import ModelOffer
from hermes.llm.events import Completed, Reply, TextPiece
from hermes.llm.tool_use import ToolAbility, ToolSwitch
from hermes.memory.provider import Part, Recalled
from hermes.store.store import Store
from hermes.types import UNANSWERED_SCORE, RecalledLine
from tests.agent.agents import check_conversation, make_agent, notes_text, spoken, stored, take_turn
from tests.agent.seam import open_seam, requests, say
from tests.llm.scripted import ScriptedModel
from tests.llm.tool_test_replies import INVENTS, LOOKS_UP, SENDS
from tests.memory.providers import Recorder

pytestmark = pytest.mark.contract("7.11")

ADD = '{"name": "memory", "arguments": {"action": "add", "target": "memory", "content": "The port is 5433"}}'
WRITTEN = f"<tool_call>\n{ADD}\n</tool_call>"


@pytest.fixture
async def session(store: Store) -> str:
    return (await store.create_session("cli")).id


async def _no_models() -> tuple[()]:
    return ()


def offer_of(home: Path, switch: ToolSwitch) -> ModelOffer:
    ability = ToolAbility("here", lambda _: switch, ToolVerdicts(home / "model-tools.json"), SystemClock())
    return ModelOffer("here", "scripted", _no_models, lambda _name, _length: ScriptedModel([]), SystemClock(), ability)


def toolless(store: Store, session: str, model: ScriptedModel) -> Agent:
    agent = make_agent(store, session, model)
    agent.offer = offer_of(store.db.path.parent, "off")
    return agent


async def test_a_written_call_is_run_and_neither_shown_nor_stored_as_a_reply(store: Store, session: str) -> None:
    model = ScriptedModel([Reply(text=f"Let me note it.\n{WRITTEN}"), Reply(text="Noted.")], piece=5)
    events = await take_turn(make_agent(store, session, model), "the port is 5433")
    assert "5433" in notes_text(store.db.path.parent)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown.split() == ["Let", "me", "note", "it.", "Noted."]
    assert any(isinstance(event, ToolFinished) and event.ok for event in events)
    assert not any("tool_call" in (content or "") for _, content in await spoken(store, session))
    assert (await stored(store, session))[1].tool_calls[0].name == "memory"
    check_conversation(model.requests[1].messages)


async def test_a_model_without_tools_that_calls_one_is_asked_once_more_plainly(store: Store, session: str) -> None:
    model = ScriptedModel([Reply(text=WRITTEN), Reply(text="It is 5433.")])
    events = await take_turn(toolless(store, session, model), "which port?")
    assert isinstance(events[-1], Replied)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["It is 5433."]
    assert await spoken(store, session) == [("user", "which port?"), ("assistant", "It is 5433.")]
    assert [request.tools for request in model.requests] == [(), ()]
    assert NO_TOOLS in model.requests[1].messages[-1]["content"]
    assert NO_TOOLS not in str(model.requests[0].messages)


async def test_a_second_call_without_tools_is_an_error_and_not_stored(store: Store, session: str) -> None:
    model = ScriptedModel([Reply(text=WRITTEN), Reply(text=ADD)])
    events = await take_turn(toolless(store, session, model), "which port?")
    assert events[-1] == Failed(session, "model", CALL_WITHOUT_TOOLS)
    assert not any(isinstance(event, TextDelta) for event in events)
    assert await spoken(store, session) == [("user", "which port?")]


class NotTold(Recorder):
    """A memory that finds a line, and probably lacks the answer."""

    async def run(self, hook: str, answer: Any, *args: Any) -> Any:
        found = await super().run(hook, answer, *args)
        line = RecalledLine("I am 41.", certainty=UNANSWERED_SCORE)
        return Recalled((Part("all", line.text, 0.0, 4),), lines=(line,)) if hook == "recall" else found


@pytest.mark.parametrize("switch", ["off", "on"])
async def test_model_without_tools_is_told_how_to_admit_what_it_was_not_told(
    store: Store, session: str, switch: ToolSwitch
) -> None:
    model = ScriptedModel([Reply(text="You have not told me that.")])
    agent = make_agent(store, session, model, plugin=NotTold())
    agent.offer = offer_of(store.db.path.parent, switch)
    await take_turn(agent, "How tall am I?")
    await agent.close()
    asked = model.requests[0].messages[-1]["content"]
    assert asked.endswith(f"</{TAG}>\n\n{NOT_TOLD}\n\nHow tall am I?") is (switch == "off")
    assert (NOT_TOLD in asked) is (switch == "off")
    assert "I am 41." in asked
    assert await spoken(store, session) == [("user", "How tall am I?"), ("assistant", "You have not told me that.")]


async def test_half_a_call_that_is_stopped_is_not_kept(store: Store, session: str) -> None:
    waits, stop = asyncio.Event(), asyncio.Event()
    model = ScriptedModel([[TextPiece("Well.\n"), TextPiece(WRITTEN[:40]), waits, Completed(Reply())]])

    async def stop_soon() -> None:
        while not model.requests:  # noqa: ASYNC110 - another task asks it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        stop.set()

    _, events = await asyncio.gather(stop_soon(), take_turn(make_agent(store, session, model), "hi", stop))
    assert "tool_call" not in str(events)
    assert await spoken(store, session) == [("user", "hi"), ("assistant", "Well.\n")]


async def test_json_for_the_person_streams_and_is_kept(store: Store, session: str) -> None:
    text = 'Here:\n```json\n{"name": "Ada", "arguments": [1, 2]}\n```\nFine?'
    model = ScriptedModel([Reply(text=text)], piece=4)
    events = await take_turn(toolless(store, session, model), "as JSON, please")
    shown = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(shown) == text
    assert len(shown) > 3
    assert await spoken(store, session) == [("user", "as JSON, please"), ("assistant", text)]


async def test_a_first_turn_tests_the_model_and_its_verdict_holds_ever_after(tmp_path: Path) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, [INVENTS, Reply(text="one"), Reply(text="two")], provider) as agent:
        agent.offer = offer_of(tmp_path, "auto")
        first, second = await say(agent, "one"), await say(agent, "two")
        asked = [[tool.name for tool in request.tools] for request in requests(agent)]
        assert asked == [["find_contact", "send_text"], [], []]
        assert [isinstance(event, Notice) and "offered no tools" in event.text for event in first].count(True) == 1
        assert not any(isinstance(event, Notice) for event in second)
        assert "`memory` tool" not in str(requests(agent)[1].messages)


async def test_a_model_that_passes_is_offered_its_tools_in_the_same_turn(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [LOOKS_UP, SENDS, Reply(text="one")]) as agent:
        agent.offer = offer_of(tmp_path, "auto")
        events = await say(agent, "one")
        assert "memory" in [tool.name for tool in requests(agent)[2].tools]
        assert not any(isinstance(event, Notice) for event in events)


async def test_the_review_of_a_model_without_tools_notes_its_lines(tmp_path: Path) -> None:
    lines = "- user: The person has a dog called Rufus.\nuser: The person owns seven castles in Spain.\ndone"
    async with open_seam(tmp_path, [Reply(text="Nice."), Reply(text=lines)]) as agent:
        agent.offer = offer_of(tmp_path, "off")
        await say(agent, "My dog is called Rufus, as every person here knows")
        agent.policy = type(agent.policy)(review_every=1)
        assert await review(agent)
        assert requests(agent)[-1].tools == ()
        assert "Rufus" in agent.notes.read("user")
        assert "castles" not in agent.notes.read("user")


def test_lines_are_read_in_whatever_list_they_stand() -> None:
    source = "user: I collect stamps from Malta and work as a nurse"
    reply = "1. `user`: collects stamps from Malta\n* **memory**: work as a nurse\nuser:\nI noted two things."
    assert read_lines(reply, source) == [("user", "collects stamps from Malta"), ("memory", "work as a nurse")]
