"""Messages whose turn a crash cut off, in a session where somebody else has spoken since."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.gateway.access import Access
from hermes.gateway.inbox import Inbox
from hermes.gateway.inbox_record import remind
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.store.chats import Chats
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Draft, Message, ToolCall
from tests.db.processes import await_end, hear, start
from tests.gateway.bot_api import BotApi
from tests.gateway.core import Gate, message, running_core
from tests.gateway.processes import BotGateway, rows, said, scripted_model, sessions, wait_until
from tests.llm.scripted import ScriptedAnswer

pytestmark = pytest.mark.contract("P1", "P2", "2.5")


async def _cut_off(home: Path, *texts: str) -> str:
    """Run a gateway that ends during a reply; return the session."""
    gate = Gate()
    async with running_core(home, gate, gateway__drain=0.1) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        for text in texts:
            await core.platform.deliver(message(text))
    [session] = sessions(home)
    return session


async def _say(home: Path, session: str, *drafts: Draft) -> None:
    """Store a message of another process in the session."""
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        await store.write(lambda tx: store.messages.append(tx, session, drafts, now=store.clock.now()))


async def test_message_answered_meanwhile_gets_that_reply_and_no_second(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = await _cut_off(home, "afterwards")
    await _say(home, session, Draft("assistant", "from elsewhere", finish_reason="stop"))
    await _say(home, session, Draft("user", "later"), Draft("assistant", "to later", finish_reason="stop"))
    async with running_core(home) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert core.platform.texts("7") == ["from elsewhere", "echo: afterwards"]
        assert len(core.model.requests) == 1
    assert rows(home, "SELECT DISTINCT state FROM hermes_queue") == [("done",)]


async def test_stop_cut_off_by_a_crash_leaves_the_inbox_and_later_ones_are_answered(tmp_path: Path) -> None:
    def die(_session_id: str) -> bool:
        raise SystemError("the process ends here")

    await _cut_off(tmp_path, "afterwards")
    async with await Store.open(tmp_path / "state.db", clock=SystemClock(), lock_timeout=5.0) as store:
        inbox = Inbox(
            store,
            Chats(store, "main", People()),
            Access(frozenset({"*"}), frozenset(), min),
            stop=die,
            wake=asyncio.Event(),
        )
        with pytest.raises(SystemError):
            await inbox.receive(message("/stop"))
        await inbox.receive(message("the last"))
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: "echo: the last" in core.platform.texts("7"))
        answers = [text for text in core.platform.texts("7") if "echo" in text]
        assert answers == ["echo: wait + afterwards", "echo: the last"], "it has its place between them"
    assert rows(tmp_path, "SELECT DISTINCT state FROM hermes_queue") == [("done",)]


@pytest.mark.processes
async def test_message_does_not_wait_for_the_lease_of_a_killed_process(tmp_path: Path) -> None:
    await _cut_off(tmp_path)
    ((lane,),) = rows(tmp_path, "SELECT lane FROM hermes_queue WHERE state = 'waiting'")
    process = start("tests.db.claimant", tmp_path / "state.db", "inbox", lane)
    hear(process)
    process.kill()
    await_end(process)
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: core.platform.texts("7") == ["echo: wait"])


@pytest.mark.parametrize("finish_reason", ["stop", "stopped"])
@pytest.mark.parametrize("behind", [[], ["afterwards"]])
async def test_message_overtaken_by_a_terminal_gets_a_separate_reply(
    tmp_path: Path, behind: list[str], finish_reason: str
) -> None:
    home = tmp_path / "home"
    session = await _cut_off(home, *behind)
    there = [Draft("user", "what is 2 + 2?"), Draft("assistant", "4", finish_reason=finish_reason)]
    await _say(home, session, *there)

    def script(request: ModelRequest) -> ScriptedAnswer:
        if not any(m["role"] == "tool" for m in request.messages):
            return Reply("let me see", tool_calls=(ToolCall("c", "session_search", '{"query": "x"}'),))
        return Reply("to this chat")

    async with running_core(home, script) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert core.platform.texts("7") == ["to this chat"]
        first, second = core.model.requests
        told = [m["content"] for m in first.messages if m["role"] == "user"]
        assert told[:-1] == ["wait", "what is 2 + 2?", *behind]
        assert told[-1] == remind([Message(0, session, "user", "wait", 0.0)])
        assert first.messages == second.messages[: len(first.messages)], "it stands where the turn began"
    assert said(home, session) == ["wait", "what is 2 + 2?", *behind]
    assert rows(home, "SELECT DISTINCT state FROM hermes_queue") == [("done",)]


async def test_message_followed_by_an_unanswered_one_is_answered_in_its_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = await _cut_off(home)
    await _say(home, session, Draft("user", "what is 2 + 2?"))
    async with running_core(home) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert "“wait”" in core.asked()[-1]


@pytest.mark.processes
def test_overtaken_turn_of_a_killed_gateway_is_answered_in_its_chat(tmp_path: Path) -> None:
    answers = [{"says": {"text": "x", "delay": 60.0}}, {"says": {"text": "4"}}, {"says": {"text": "At nine."}}]
    with BotApi() as api, scripted_model(answers) as model:
        ann = api.person("Ann")
        gateway = BotGateway(tmp_path / "home", api, model)
        with gateway:
            api.say(ann.dm, "when is my flight?", ann)
            wait_until(model.asked)
            gateway.kill()
        [(session,)] = gateway.rows("SELECT id FROM sessions")
        assert gateway.hermes("chat", "-s", str(session), "-q", "what is 2 + 2?") == "4\n"
        with gateway:
            api.until(lambda: api.texts(ann.dm.id) == ["At nine."])
            gateway.stop()
        assert gateway.said() == ["when is my flight?", "what is 2 + 2?"]
        assert gateway.said("assistant") == ["4", "At nine."]
        assert "when is my flight?" in model.asked()[-1][-1]
        assert gateway.rows("SELECT DISTINCT state FROM hermes_queue") == [("done",)]


async def test_message_with_only_a_partial_reply_is_answered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = await _cut_off(home)
    await _say(home, session, Draft("assistant", "I was going to", finish_reason="error"))
    async with running_core(home) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert len(core.model.requests) == 1
    assert rows(home, "SELECT content FROM messages WHERE role = 'user'") == [("wait",)]
