"""Temporary agents: the provider sees only the task and its result."""

from __future__ import annotations

import asyncio
import dataclasses
import typing
from pathlib import Path

import pytest
from msgspec import Struct

from hermes.agent.agent import Policy, TemporaryAgent
from hermes.agent.builtin_tools import UNFINISHED
from hermes.agent.loop import EMPTY_REPLY, Responder
from hermes.agent.tools import Toolbox
from hermes.events import Replied, ToolFinished, ToolProgress, ToolStarted
from hermes.fence import fence
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.llm.model import ModelRequest
from hermes.memory.caller import Memory
from hermes.store.store import Store
from tests.agent.seam import calls, offered, open_seam, requests, say
from tests.llm.scripted import ScriptedAnswer
from tests.memory.providers import Recorder


@pytest.mark.contract("4.6")
async def test_a_sub_agent_leaves_one_trace_with_the_provider_its_task_and_result(tmp_path: Path) -> None:
    provider = Recorder()
    script = [calls("delegate", task=f"count {fence('x')}the figs"), Reply("seven"), Reply("there are seven")]
    async with open_seam(tmp_path, script, provider) as agent:
        await say(agent, "how many?")
        worker = requests(agent)[1]
        assert [message["role"] for message in worker.messages] == ["system", "user"]
        assert worker.messages[1]["content"] == "count the figs"
        assert "how many?" not in str(worker.messages)
        [delegated] = [entry for entry in provider.entries if entry.kind == "delegation"]
        assert (delegated.data, delegated.text) == ({"task": "count the figs"}, "seven")
        count = await agent.store.read(lambda tx: tx.execute("SELECT count(*) FROM sessions").fetchone()[0])
        assert count == 1
    counted = {hook: provider.hooks().count(hook) for hook in provider.hooks() if hook not in ("deliver", "prepare")}
    assert counted == dict.fromkeys(
        [
            *("is_available", "open", "recall", "close", "shutdown"),
        ],
        1,
    )
    assert provider.told("said", "reply", "delegation") == ["how many?", "seven", "there are seven"]


@pytest.mark.contract("4.6")
async def test_a_sub_agent_cannot_delegate_note_or_use_the_provider(tmp_path: Path) -> None:
    script = [
        calls("delegate", task="try everything"),
        calls("delegate", "c2", task="deeper"),
        calls("memory", "c3", action="add", target="user", content="x"),
        calls("lookup", "c4"),
        Reply("gave up"),
        Reply("done"),
    ]
    provider = Recorder()
    async with open_seam(tmp_path, script, provider) as agent:
        await say(agent, "go")
        assert offered(requests(agent)[1]) == {"session_search", "read_notes"}
        results = [m["content"] for m in requests(agent)[4].messages if m["role"] == "tool"]
        assert [text.split(".")[0] for text in results] == [
            f"There is no tool '{name}'" for name in ("delegate", "memory", "lookup")
        ]
        assert provider.told("delegation") == ["gave up"]
        assert provider.called("handle_tool_call") == []
        assert agent.notes.read("user") == ""


async def test_a_sub_agent_has_no_search_when_the_policy_switches_it_off(tmp_path: Path) -> None:
    policy = Policy(review_every=0, tools_off=frozenset({"session_search"}))
    async with open_seam(tmp_path, [calls("delegate", task="t"), Reply("r"), Reply("d")], None, policy) as agent:
        await say(agent, "go")
        assert offered(requests(agent)[1]) == {"read_notes"}


@pytest.mark.contract("4.6")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ModelFailed("server", "the endpoint is on fire", retryable=False), "the endpoint is on fire"),
        (Reply(""), EMPTY_REPLY),
    ],
)
async def test_a_sub_agent_that_fails_says_so_and_the_provider_hears_nothing(
    tmp_path: Path, answer: ModelFailed | Reply, said: str
) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, [calls("delegate", task="t"), answer, Reply("sorry")], provider) as agent:
        [finished] = [event for event in await say(agent, "go") if isinstance(event, ToolFinished)]
        assert finished.result.startswith(f"{UNFINISHED}: {said}")
        assert not finished.ok
        assert provider.told("delegation") == []


def held_types(kind: type) -> set[type]:
    """Return all types in the declarations of `kind`'s fields, recursively."""
    found: set[type] = set()
    waiting = [kind]
    while waiting:
        here = waiting.pop()
        hints = typing.get_type_hints(here) if issubclass(here, Struct) or dataclasses.is_dataclass(here) else {}
        for hint in hints.values():
            parts = [hint, *typing.get_args(hint)]
            new = {part for part in parts if isinstance(part, type)} - found
            found |= new
            waiting += new
    return found


@pytest.mark.contract("4.6")
def test_a_temporary_agent_has_no_place_for_a_memory_or_a_store() -> None:
    held = held_types(TemporaryAgent)
    assert held >= {Responder, Toolbox, str}
    assert not any(issubclass(kind, Memory | Store) for kind in held)
    assert not hasattr(TemporaryAgent, "__dict__") or "__slots__" in vars(TemporaryAgent)


async def test_what_a_sub_agent_does_is_shown_as_it_does_it(tmp_path: Path) -> None:
    script = [
        calls("delegate", task="find out"),
        calls("session_search", "c2", query="figs"),
        calls("read_notes", "c3"),
        Reply("two figs"),
        Reply("done"),
    ]
    async with open_seam(tmp_path, script, Recorder()) as agent:
        agent.notes.add("user", "likes figs")
        events = await say(agent, "go")
        shown = [(event.call_id, event.text) for event in events if isinstance(event, ToolProgress)]
        assert shown == [("c1", 'session_search {"query": "figs"}'), ("c1", "read_notes {}")]
        place = [type(event) for event in events].index
        assert place(ToolStarted) < place(ToolProgress) < place(ToolFinished)
        notes = [m["content"] for m in requests(agent)[3].messages if m["role"] == "tool"][-1]
        assert "likes figs" in notes
        assert notes.startswith("<memory-context>")


async def test_sub_agent_that_searches_without_end_must_answer(tmp_path: Path) -> None:
    policy = Policy(review_every=0, delegate_steps=3)
    searches = [calls("session_search", f"s{number}", query="x") for number in range(3)]
    script = [calls("delegate", task="search"), *searches, Reply("nothing found"), Reply("done")]
    async with open_seam(tmp_path, script, Recorder(), policy) as agent:
        events = await say(agent, "go")
        [finished] = [event for event in events if isinstance(event, ToolFinished)]
        assert (finished.result, finished.ok) == ("nothing found", True)
        assert requests(agent)[4].tools == (), "in the last round there is nothing more to call"


async def test_sub_agent_that_takes_too_long_is_given_up_and_the_turn_goes_on(tmp_path: Path) -> None:
    policy = Policy(review_every=0, delegate_deadline=0.05)

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if request.messages[-1]["content"] == "wait":  # the sub-agent, if it gets so far in its time
            return [asyncio.Event(), Completed(Reply("too late"))]
        return Reply("done") if request.messages[-1]["role"] == "tool" else calls("delegate", task="wait")

    async with open_seam(tmp_path, answer, Recorder(), policy) as agent:
        events = await say(agent, "go")
        [finished] = [event for event in events if isinstance(event, ToolFinished)]
        assert not finished.ok
        assert "did not finish within 0.05 s (`agent.delegate_timeout`)" in finished.result
        assert isinstance(events[-1], Replied)


@pytest.mark.contract("4.11")
async def test_sub_agent_of_an_incognito_turn_can_neither_search_nor_read_notes(tmp_path: Path) -> None:
    script = [calls("delegate", task="look"), Reply("nothing"), Reply("done")]
    async with open_seam(tmp_path, script, Recorder()) as agent:
        await agent.store.write(lambda tx: agent.store.incognito.begin(tx, agent.session_id))
        await say(agent, "go")
        assert requests(agent)[1].tools == ()
