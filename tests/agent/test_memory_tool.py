"""Changes of the built-in notes are mirrored and shown once; provider tools obey the policy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from filelock import FileLock

from hermes.agent.agent import Policy
from hermes.agent.memory_tool import memory_tool
from hermes.events import MemoryUpdated, Notice, ToolFinished
from hermes.fence import NOTE, fence
from hermes.llm.events import Reply
from hermes.memory.notes import Notes
from hermes.scope import Owner
from hermes.types import ToolSpec
from tests.agent.seam import calls, offered, open_seam, requests, say, settle
from tests.memory.providers import LOOKUP, OWNER, Recorder, Troubled, raise_error

DONE = Reply("done")


@pytest.mark.contract("4.10")
async def test_every_change_of_a_note_is_mirrored_once_and_shown_once(tmp_path: Path) -> None:
    provider = Recorder()
    changes = [
        calls("memory", action="add", target="user", content="likes figs"),
        calls("memory", action="replace", target="user", old_text="figs", content="likes dates"),
        calls("memory", action="remove", target="user", old_text="dates"),
        calls("memory", action="add", target="memory", content=f"port 5433 {fence('recalled')}"),
    ]
    script = [answer for change in changes for answer in (change, DONE)]
    async with open_seam(tmp_path, script, provider) as agent:
        events = []
        for _ in changes:  # what changes twice before it is mirrored is mirrored as it is then
            events += await say(agent, "hello")
            await settle(agent)
        wanted = [
            ("user", "add", "likes figs"),
            ("user", "replace", "likes dates"),
            ("user", "remove", "likes dates"),
            ("memory", "add", "port 5433"),
        ]
        noted = [entry for entry in provider.entries if entry.kind == "note"]
        assert [(e.data["target"], e.data["action"], e.text or e.data["old"]) for e in noted] == wanted
        assert all(entry.speaker == OWNER for entry in noted)
        assert [event for event in events if isinstance(event, MemoryUpdated)] == [MemoryUpdated(*w) for w in wanted]
        assert agent.notes.read("memory") == "port 5433"


@pytest.mark.contract("4.10")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "add", "target": "user", "content": ""}, "cannot be empty"),
        ({"action": "add", "target": "moon", "content": "x"}, "no target 'moon'"),
        ({"action": "sing", "target": "user"}, "no action 'sing'"),
        ({"action": "remove", "target": "user", "old_text": "nothing"}, "no entry contains 'nothing'"),
        ({"action": "add", "target": "user", "content": "x" * 5000}, "is the limit"),
        ({"action": "add"}, "cannot be empty"),
        ({"action": "replace", "target": "user", "old_text": "figs"}, "cannot be empty"),
    ],
)
async def test_a_refused_change_is_neither_mirrored_nor_shown(
    tmp_path: Path, arguments: dict[str, str], said: str
) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, [calls("memory", **arguments), DONE], provider) as agent:
        events = await say(agent, "hello")
        [finished] = [event for event in events if isinstance(event, ToolFinished)]
        assert said in finished.result
        assert not finished.ok
        assert not any(isinstance(event, MemoryUpdated) for event in events)
        assert provider.told("note") == []


@pytest.mark.contract("4.10")
@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "replace", "target": "user", "content": "likes dates"},
        {"action": "replace", "target": "user", "content": "likes dates", "old_text": "plums"},
        {"action": "ADD", "target": "USER.md", "content": "likes dates"},
        {"target": "user", "content": "likes dates"},
        {"content": "likes dates"},
    ],
)
async def test_the_tool_accepts_what_small_models_send_and_quotes_the_note(
    tmp_path: Path, arguments: dict[str, str]
) -> None:
    provider = Recorder()
    script = [calls("memory", **arguments), calls("memory", action="add", content="Likes dates."), DONE]
    async with open_seam(tmp_path, script, provider) as agent:
        agent.notes.add("user", "likes figs")
        events = await say(agent, "hello")
        first, second = (event for event in events if isinstance(event, ToolFinished))
        assert first.ok
        assert first.result.startswith("Noted in USER.md: likes dates\nUSER.md says now:\n")
        assert "likes figs" in first.result
        assert second.ok, "what is noted already is no failure"
        assert second.result.startswith("That is noted already: likes dates\n")
        assert provider.told("note") == ["likes dates"]
        assert [e for e in events if isinstance(e, MemoryUpdated)] == [MemoryUpdated("user", "add", "likes dates")]


@pytest.mark.contract("4.10")
async def test_an_entry_of_one_note_is_not_added_to_the_other(tmp_path: Path) -> None:
    provider = Recorder()
    script = [calls("memory", action="add", target="memory", content="The user likes figs."), DONE]
    async with open_seam(tmp_path, script, provider) as agent:
        agent.notes.add("user", "likes figs")
        events = await say(agent, "hello")
        [finished] = [event for event in events if isinstance(event, ToolFinished)]
        assert finished.result.startswith("That is noted already: likes figs\nUSER.md says now:\nlikes figs\n")
        assert agent.notes.read("memory") == ""
        assert provider.told("note") == []


async def test_a_change_whose_caller_is_cancelled_is_mirrored_all_the_same(tmp_path: Path) -> None:
    mirrored = asyncio.Event()
    tool = memory_tool(Notes(tmp_path, Owner(), {"memory": 100, "user": 100}), lambda *_: mirrored.set())
    (tmp_path / "memories").mkdir()
    with FileLock(tmp_path / "memories" / ".lock"):
        running = asyncio.ensure_future(tool.run({"action": "add", "target": "user", "content": "kept"}))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert not mirrored.is_set()
    await asyncio.wait_for(mirrored.wait(), 60)
    assert Notes(tmp_path, Owner(), {"memory": 100, "user": 100}).read("user") == "kept"


@pytest.mark.contract("4.9")
async def test_a_provider_tool_is_offered_and_run_and_its_failure_reaches_the_model(tmp_path: Path) -> None:
    provider = Troubled("call_tool", raise_error)
    provider.troubled = False
    async with open_seam(tmp_path, [calls("lookup", what="figs"), DONE, calls("lookup"), DONE], provider) as agent:
        events = await say(agent, "hello")
        assert "lookup" in offered(requests(agent)[0])
        assert provider.called("call_tool") == [("lookup", {"what": "figs"})]
        assert ToolFinished("c1", "lookup", fence("lookup found figs"), True) in events
        provider.troubled = True
        [finished] = [e for e in await say(agent, "again") if isinstance(e, ToolFinished)]
        assert finished.result.startswith("call_tool failed: RuntimeError")
        assert not finished.ok


@pytest.mark.contract("4.9")
async def test_tools_that_the_policy_switches_off_are_neither_offered_nor_callable(tmp_path: Path) -> None:
    provider = Recorder()
    policy = Policy(review_every=0, tools_off=frozenset({"lookup", "memory"}))
    script = [calls("lookup"), calls("memory", action="add", target="user", content="x"), DONE]
    async with open_seam(tmp_path, script, provider, policy) as agent:
        events = await say(agent, "hello")
        assert offered(requests(agent)[0]) == {"session_search", "delegate"}
        finished = [event for event in events if isinstance(event, ToolFinished)]
        assert [event.result.split(".")[0] for event in finished] == [
            "There is no tool 'lookup'",
            "There is no tool 'memory'",
        ]
        assert provider.called("call_tool") == []
        assert agent.notes.read("user") == ""


@pytest.mark.contract("4.9")
async def test_a_provider_tool_named_like_a_built_in_one_is_dropped_and_reported_once(tmp_path: Path) -> None:
    provider = Recorder()
    provider.tools = [ToolSpec("memory", "mine", {"type": "object"}), LOOKUP]
    script = [calls("memory", action="add", target="user", content="likes figs"), DONE, DONE]
    async with open_seam(tmp_path, script, provider) as agent:
        events = [*await say(agent, "hello"), *await say(agent, "again")]
        assert [event.text for event in events if isinstance(event, Notice)] == [
            "memory provider recorder: tools has a tool 'memory', which is a built-in one; going on without it"
        ]
        assert agent.notes.read("user") == "likes figs"
        assert provider.called("call_tool") == []
        [spec] = [spec for spec in requests(agent)[0].tools if spec.name == "memory"]
        assert spec.description != "mine"
        assert "lookup" in offered(requests(agent)[0])


@pytest.mark.contract("4.1")
async def test_recalled_text_is_fenced_in_the_last_user_message_and_never_stored(tmp_path: Path) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, [Reply("one"), Reply("two")], provider) as agent:
        await say(agent, "first")
        await say(agent, "second")
        first, second = (request.messages for request in requests(agent))
        assert first[-1]["content"] == f"{fence('recalled for first')}\n\nfirst"
        assert second[-1]["content"] == f"{fence('recalled for second')}\n\nsecond"
        assert second[-3]["content"] == "first"
        assert NOTE not in str(second[:-1])
        assert "The block of the provider." in first[0]["content"]
        assert first[0] == second[0]
        history = await agent.store.read(lambda tx: list(agent.store.messages.history(tx, agent.session_id)))
        assert [message.content for message in history] == ["first", "one", "second", "two"]
        assert provider.told() == ["first", "one", "second", "two"]
    assert provider.called("prepare") == [(None,), ("first",), ("second",)]
    asked = [hook for hook in provider.hooks() if hook not in ("deliver", "prepare")]
    assert asked == ["is_available", "open", "recall", "recall", "close", "shutdown"]
