"""`/undo` and `/retry` where people type them: at a terminal, in a chat, over HTTP, and after a crash in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hermes.agent import undo
from hermes.agent.agent import Agent
from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation, find_live
from hermes.errors import UsageError
from hermes.events import Replied, TurnEvent
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.memory.forgetting import Retraction
from hermes.slash import acts
from hermes.slash.context import Again
from tests.gateway.core import Core, Gate, message, request, running_core, talk
from tests.gateway.processes import rows
from tests.llm.loopback import LoopbackServer, says
from tests.llm.scripted import ScriptedAnswer
from tests.slash.surfaces import ask, at_terminal, say

LIVE = "SELECT role, content FROM messages WHERE active = 1 ORDER BY id"


async def retried(conversation: TerminalConversation) -> list[TurnEvent]:
    answered = await run_command(conversation, "/retry", asyncio.Event())
    assert isinstance(answered.say, Again)
    return [event async for event in conversation.take_turn(answered.say, asyncio.Event())]


async def heard(core: Core, text: str, count: int) -> str:
    """Say something in the chat, and return the last of `count` messages sent to it by then."""
    await core.platform.deliver(message(text))
    await core.platform.until(lambda: len(core.platform.sent) == count)
    return core.platform.sent[-1][1]


@pytest.mark.contract("10.25", "10.26")
async def test_a_terminal_takes_back_and_asks_again(tmp_path: Path) -> None:
    async with LoopbackServer([says("one"), says("two"), says("three")]) as server:
        settings = {"model__base_url": server.base_url, "model__default": "loop-1", "compression__idle": 0}
        async with at_terminal(tmp_path, **settings) as conversation:
            await say(conversation, "stamps")
            events = await retried(conversation)
            assert isinstance(events[-1], Replied)
            await say(conversation, "figs")
            assert await ask(conversation, "/undo") == "Took back the last turn (2 messages): “figs” and what followed."
    assert rows(tmp_path, LIVE) == [("user", "stamps"), ("assistant", "two")]
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(5,)]


@pytest.mark.parametrize("line", ["/undo 0", "/undo 51", "/undo two", "/undo -1", "/undo ²", "/retry now"])
async def test_what_makes_no_sense_is_refused_and_nothing_is_taken_back(tmp_path: Path, line: str) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "stamps")
        with pytest.raises(UsageError):
            await ask(conversation, line)
    assert len(rows(tmp_path, LIVE)) == 2


@pytest.mark.parametrize("line", ["/undo", "/retry"])
async def test_where_nothing_was_said_there_is_nothing_to_take_back(tmp_path: Path, line: str) -> None:
    async with at_terminal(tmp_path) as conversation:
        with pytest.raises(UsageError, match="nothing was said yet"):
            await ask(conversation, line)
    async with running_core(tmp_path / "chat") as core:
        assert await heard(core, line, 1) == "nothing was said yet"


@pytest.mark.contract("10.25")
async def test_messages_of_a_chat_that_were_answered_together_are_taken_back_together(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
        await core.platform.deliver(message("figs"))
        await core.platform.deliver(message("tulips"))
        gate.opened.set()
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert (await heard(core, "/undo", 3)).startswith("Took back the last turn (3 messages): “figs”")
    assert rows(tmp_path, LIVE) == [("user", "wait"), ("assistant", "echo: wait")]


@pytest.mark.contract("10.26")
async def test_in_a_group_a_guest_has_their_own_words_alone_answered_anew(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for count, (author, text) in enumerate([("ann", "stamps"), ("bob", "/retry"), ("ann", "/retry")], 1):
            await core.platform.deliver(message(text, kind="group", author=author))
            await core.platform.until(lambda wanted=count: len(core.platform.sent) == wanted)  # type: ignore[misc]
        assert acts.SAID_BY_OTHERS in core.platform.sent[1][1]
        assert len(core.model.requests) == 2


@pytest.mark.contract("10.25")
async def test_in_a_group_a_guest_takes_back_their_own_words_alone(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for count, (author, text) in enumerate([("ann", "stamps"), ("bob", "figs"), ("ann", "/undo")], 1):
            await core.platform.deliver(message(text, kind="group", author=author))
            await core.platform.until(lambda wanted=count: len(core.platform.sent) == wanted)  # type: ignore[misc]
        assert undo.SAID_BY_OTHERS in core.platform.sent[-1][1]
        await core.platform.deliver(message("/undo", kind="group", author="bob"))
        await core.platform.until(lambda: len(core.platform.sent) == 4)
        assert core.platform.sent[-1][1].startswith("Took back the last turn")
    assert [content for _, content in rows(tmp_path, LIVE)] == ["stamps", "echo: [Ann] stamps"]


@pytest.mark.contract("10.26")
async def test_a_retry_over_http_answers_as_any_turn_does(tmp_path: Path) -> None:
    async with running_core(tmp_path, numbered()) as core:
        assert await talk(core, request("stamps", "1", session="s")) == "reply 1"
        assert await talk(core, request("/retry", "2", session="s")) == "reply 2"
        assert await talk(core, request("/retry", "2", session="s")) == "reply 2", "the same request again"
    assert rows(tmp_path, LIVE) == [("user", "stamps"), ("assistant", "reply 2")]


def numbered() -> Callable[[ModelRequest], ScriptedAnswer]:
    replies = (Reply(f"reply {number}") for number in range(1, 100))
    return lambda _: next(replies)


@pytest.mark.contract("10.25", "P2")
async def test_an_undo_that_a_crash_cut_off_is_answered_and_takes_nothing_back_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = asyncio.Event()

    async def hang(_agent: Agent, _taken: Sequence[Retraction]) -> list[str]:
        committed.set()
        await asyncio.Event().wait()
        return []

    async with running_core(tmp_path, gateway__drain=0.1) as core:
        await heard(core, "stamps", 1)
        await heard(core, "figs", 2)
        with monkeypatch.context() as patched:
            patched.setattr("hermes.agent.undo.settle_memory", hang)
            await core.platform.deliver(message("/undo"))
            await committed.wait()
            await core.end()
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert core.platform.sent[0][1] == "Took back the last turn (2 messages)."
    assert rows(tmp_path, LIVE) == [("user", "stamps"), ("assistant", "echo: stamps")]


@pytest.mark.contract("10.26", "P2")
async def test_a_retry_that_a_crash_cut_off_is_answered_once(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def second_hangs(_: ModelRequest) -> ScriptedAnswer:
        if len(core.model.requests) == 1:
            return Reply("first")
        asked.set()
        return [asyncio.Event(), Completed(Reply(""))]

    async with running_core(tmp_path, second_hangs, gateway__drain=0.1) as core:
        await heard(core, "stamps", 1)
        await core.platform.deliver(message("/retry"))
        await asked.wait()
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        assert core.platform.texts("7") == ["echo: stamps"]
        assert core.asked() == ["stamps"]
    assert rows(tmp_path, LIVE) == [("user", "stamps"), ("assistant", "echo: stamps")]


@pytest.mark.contract("10.25")
async def test_waiting_message_retracted_elsewhere_is_not_answered(tmp_path: Path) -> None:
    gate = Gate()
    async with running_core(tmp_path, gate, gateway__drain=0.1) as core:
        await core.platform.deliver(message("wait"))
        await gate.asked.wait()
    [(session,)] = rows(tmp_path, "SELECT id FROM sessions")
    async with at_terminal(tmp_path) as conversation:
        store = conversation.store
        await conversation.resume(await store.read(lambda tx: find_live(store, tx, str(session))))
        assert (await ask(conversation, "/undo")).startswith("Took back the last turn (1 message")
    async with running_core(tmp_path) as core:
        assert await heard(core, "figs", 1) == "echo: figs"
    assert rows(tmp_path, LIVE) == [("user", "figs"), ("assistant", "echo: figs")]
    assert rows(tmp_path, "SELECT count(*) FROM hermes_queue WHERE queue = 'inbox' AND state <> 'done'") == [(0,)]


@pytest.mark.contract("10.25")
async def test_a_session_that_was_taken_back_whole_is_not_listed(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "stamps")
        kept = conversation.session_id
        await ask(conversation, "/new")
        await say(conversation, "figs")
        await ask(conversation, "/undo")
        store = conversation.store
        listed = await store.read(lambda tx: store.sessions.recent(tx, limit=9))
        assert [one.session.id for one in listed] == [kept]
        assert len(await store.read(lambda tx: store.sessions.recent(tx, limit=9, everything=True))) == 2
        await say(conversation, "plums")
        assert len(await store.read(lambda tx: store.sessions.recent(tx, limit=9))) == 2
