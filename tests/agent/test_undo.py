"""Undo of the last turns and retry of the last one: the model, notes and memory follow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from hermes.agent.agent import Agent, Policy
from hermes.agent.compress import compressor_of
from hermes.agent.review import review
from hermes.agent.turn import run_turn
from hermes.agent.undo import UNCHANGED, retry, undo
from hermes.db.engine import Tx
from hermes.errors import UsageError
from hermes.events import Failed, Notice, Replied, Stopped, TurnEvent
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.llm.model import ModelRequest
from hermes.memory.forgetting import ForgettingEpoch, find_kept
from hermes.memory.provider import (
    Address,
    Conversation,
    DeadLetter,
    Entry,
    Later,
    MemorySession,
    Outcome,
    Speaker,
    ToolUse,
)
from hermes.memory.values import Wording
from hermes.store.held_lease import LaneOptions
from hermes.store.synced import synced_among
from hermes.store.turns import NoRecord
from tests.agent.agents import spoken
from tests.agent.lanes import hold_lane
from tests.agent.seam import calls, open_seam, requests, say, settle
from tests.llm.scripted import ScriptedAnswer, ScriptedModel
from tests.memory.providers import PATIENT, RecordedSession, Recorder

FAILED = ModelFailed("bad_reply", "the model is out", retryable=False)


async def take_back(agent: Agent, count: int = 1, cause: str = "c") -> str:
    return await undo(agent, count, cause, asyncio.Event())


async def answer_again(agent: Agent, cause: str = "r") -> list[TurnEvent]:
    async with aclosing(retry(agent, cause, asyncio.Event(), NoRecord())) as events:
        seen = [event async for event in events]
    await settle(agent)
    return seen


def asked(agent: Agent, place: int = -1) -> list[str]:
    """Return the conversation as the model received it."""
    return [m["content"] for m in requests(agent)[place].messages if m["role"] in ("user", "assistant")]


def undone_at(tx: Tx, session_id: str) -> list[float]:
    rows = tx.execute("SELECT at FROM hermes_undone WHERE session_id = ?", (session_id,))
    return [row["at"] for row in rows]


class Undoer(Recorder):
    """A provider that accepts `undo` entries."""

    def __init__(self) -> None:
        super().__init__()
        self.wants = {*self.wants, "undo"}

    def undos(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == "undo"]


@pytest.mark.contract("10.25")
async def test_the_next_request_contains_nothing_of_undone_turns(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [Reply("one"), Reply("two"), Reply("three")]) as agent:
        await say(agent, "stamps")
        await say(agent, "figs")
        assert await take_back(agent) == "Took back the last turn (2 messages): “figs” and what followed."
        await say(agent, "tulips")
        assert asked(agent) == ["stamps", "one", "tulips"]
        assert await take_back(agent, 2, "c2") == "Took back the last 2 turns (4 messages): “stamps” and what followed."
        with pytest.raises(UsageError, match="nothing was said yet"):
            await take_back(agent, 1, "c3")


@pytest.mark.contract("10.25", "P2")
async def test_a_repeated_command_undoes_nothing_twice(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [Reply("one"), Reply("two")]) as agent:
        await say(agent, "stamps")
        await say(agent, "figs")
        for _ in range(2):
            assert (await take_back(agent, 1, "item 7")).startswith("Took back the last turn (2 messages)")
        assert await spoken(agent.store, agent.session_id) == [("user", "stamps"), ("assistant", "one")]


@pytest.mark.contract("10.26")
async def test_a_retry_answers_the_same_message_anew_and_the_model_sees_it_once(tmp_path: Path) -> None:
    provider = Undoer()
    async with open_seam(tmp_path, [Reply("one"), Reply("two"), Reply("better")], provider) as agent:
        await say(agent, "stamps")
        await say(agent, "figs")
        events = await answer_again(agent)
        assert isinstance(events[-1], Replied)
        assert events[-1].text == "better"
        assert [text.rpartition("\n")[2] for text in asked(agent)] == ["stamps", "one", "figs"]
        assert await spoken(agent.store, agent.session_id) == [
            ("user", "stamps"), ("assistant", "one"), ("user", "figs"), ("assistant", "better"),
        ]  # fmt: skip
    assert provider.told() == ["stamps", "one", "figs", "two", "better"], "memory is told of the message once"
    [gone] = provider.undos()
    assert len(gone.data["times"]) == 1


@pytest.mark.contract("10.26")
async def test_a_turn_that_failed_or_was_stopped_can_be_retried(tmp_path: Path) -> None:
    def stopping(_: ModelRequest) -> ScriptedAnswer:
        answers = next(script)
        if answers is None:
            stop.set()
            return [asyncio.Event(), Completed(Reply(""))]
        return answers

    script = iter([FAILED, Reply("first"), None, Reply("second")])
    stop = asyncio.Event()
    async with open_seam(tmp_path, stopping) as agent:
        assert isinstance((await say(agent, "stamps"))[-1], Failed)
        assert isinstance((await answer_again(agent))[-1], Replied)
        async with aclosing(run_turn(agent, "figs", stop)) as events:
            assert isinstance([event async for event in events][-1], Stopped)
        assert isinstance((await answer_again(agent, "r2"))[-1], Replied)
        assert await spoken(agent.store, agent.session_id) == [
            ("user", "stamps"), ("assistant", "first"), ("user", "figs"), ("assistant", "second"),
        ]  # fmt: skip


@pytest.mark.contract("10.27")
async def test_unsent_entries_are_withdrawn_in_the_commit_of_the_undo(tmp_path: Path) -> None:
    provider = Undoer()
    provider.pace = "session"
    async with open_seam(tmp_path, [Reply("one"), Reply("two")], provider) as agent:
        await say(agent, "stamps")
        await say(agent, "figs")
        assert await take_back(agent) == "Took back the last turn (2 messages): “figs” and what followed."

        def read(tx: Tx) -> list[tuple[str, int]]:
            return synced_among(tx, range(1, 100))

        assert await agent.store.read(read) == [("recorder", 1), ("recorder", 2)]
        assert await agent.store.read(lambda tx: agent.store.unsynced.messages(tx, "another", agent.session_id)) != []
        assert await agent.store.read(lambda tx: agent.store.unsynced.sessions(tx, "recorder")) == [], "nor later"
    assert provider.told() == ["stamps", "one"]
    assert provider.undos() == []


@pytest.mark.contract("10.27")
async def test_sent_entries_are_deleted_at_the_provider_after_all_earlier_ones(tmp_path: Path) -> None:
    provider = Undoer()
    async with open_seam(tmp_path, [Reply("one"), Reply("two")], provider) as agent:
        await say(agent, "stamps")
        await say(agent, "figs")
        said = await agent.store.read(lambda tx: list(agent.store.messages.history(tx, agent.session_id)))
        told = await take_back(agent)
        assert told.splitlines()[1:] == ["The undone messages are deleted at recorder as well."]
        [entry] = provider.undos()
        assert provider.entries[-1] == entry
        times = [message.timestamp for message in said[2:]]
        assert entry.data == {"session_id": agent.session_id, "times": times, "entries": [], "may_arrive": {}}
        assert entry.address == {"to": agent.session_id}
        since = await agent.store.read(lambda tx: ForgettingEpoch.read(tx, "recorder", now=0.0).forgotten_at)
        [done_at] = await agent.store.read(lambda tx: undone_at(tx, agent.session_id))
        assert since > done_at, "nothing is recalled that was fetched before it was deleted"
        kept = await agent.store.read(lambda tx: find_kept(agent.store, tx, Wording(("figs",))))
        assert kept.is_empty, "there is nothing left to forget"


@pytest.mark.contract("10.27")
async def test_a_provider_that_takes_no_such_wish_is_named(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [Reply("one")], Recorder()) as agent:
        await say(agent, "stamps")
        told = await take_back(agent)
        assert told.splitlines()[1:] == ["recorder received it and cannot delete it: it stays there."]


@pytest.mark.contract("10.27")
@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_a_conversation_of_an_earlier_version_is_deleted_too(tmp_path: Path, command: str) -> None:
    async with open_seam(tmp_path, [Reply("one")], Recorder()) as agent:
        await say(agent, "stamps")
        session = agent.session_id
    provider = Undoer()
    async with open_seam(tmp_path, [Reply("two")], provider, session_id=session) as agent:
        await (take_back(agent) if command == "/undo" else answer_again(agent))
        await settle(agent)
    assert [entry.data["session_id"] for entry in provider.undos()] == [session]


class Concluding(RecordedSession):
    """A provider session whose tool records an entry, and which has recorded another one before."""

    async def call_tool(self, use: ToolUse, speaker: Speaker) -> str:
        host, session = self._plugin.host, self._conversation.session_id
        await host.put(session, "files", {"of": "the provider"})
        await host.put(session, use.key, {"of": "the tool"})
        return await super().call_tool(use, speaker)


class Concluder(Undoer):
    def open(self, conversation: Conversation, address: Address) -> MemorySession:
        return Concluding(self, conversation)


@pytest.mark.contract("10.27")
async def test_entries_of_the_turns_provider_tools_are_named_and_no_others(tmp_path: Path) -> None:
    provider = Concluder()
    script = [calls("lookup", what="stamps"), Reply("one"), calls("lookup", what="figs"), Reply("two")]
    async with open_seam(tmp_path, script, provider) as agent:
        await say(agent, "stamps")
        await say(agent, "figs")
        await take_back(agent)
    [entry] = provider.undos()
    assert entry.data["entries"] == [{"kind": "own", "data": {"of": "the tool"}, "note": None}]
    assert len([one for one in provider.entries if one.kind == "own"]) == 3


@pytest.mark.contract("10.27")
async def test_entries_of_the_turns_sub_agents_are_named_too(tmp_path: Path) -> None:
    provider = Undoer()
    script = [calls("delegate", task="count figs"), Reply("twelve"), Reply("one")]
    async with open_seam(tmp_path, script, provider) as agent:
        await say(agent, "figs")
        assert provider.told("delegation") == ["twelve"]
        await take_back(agent)
    [entry] = provider.undos()
    assert entry.data["entries"] == [{"kind": "delegation", "data": {"task": "count figs"}, "note": None}]


class Unable(Undoer):
    """A provider that receives deletions and cannot do them."""

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        done = await super().deliver(entries, until)
        return [
            DeadLetter("it cannot") if entry.kind == "undo" else one for entry, one in zip(entries, done, strict=True)
        ]


@pytest.mark.contract("10.27")
async def test_a_provider_that_cannot_delete_says_why_and_does_not_count_as_failing(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [Reply("one")], Unable()) as agent:
        await say(agent, "stamps")
        told = await take_back(agent)
        assert told.splitlines()[1:] == ["Something stays at recorder: it cannot"]
        assert (agent.memory.state, agent.memory.take_notices()) == ("ok", [])


class Away(Undoer):
    """A provider whose server is unreachable while `is_away`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.tried = threading.Event()

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        if self.is_away:
            self.tried.set()
            return [Later("no connection", after=0.1)]
        return await super().deliver(entries, until)


@pytest.mark.contract("10.27")
async def test_deletions_wait_for_the_server_and_cover_entries_that_may_have_arrived(tmp_path: Path) -> None:
    provider = Away()
    async with open_seam(
        tmp_path, [Reply("one"), Reply("two")], provider, deadlines=replace(PATIENT, turn=0.3)
    ) as agent:
        await say(agent, "stamps")
        provider.is_away = True
        async with aclosing(run_turn(agent, "figs", asyncio.Event())) as events:
            assert isinstance([event async for event in events][-1], Replied)
        assert await asyncio.to_thread(provider.tried.wait, 20)
        told = await take_back(agent)
        assert told.splitlines()[1:] == ["recorder received it and deletes it as soon as it can be reached."]
        provider.is_away = False
        await settle(agent)
    assert provider.told() == ["stamps", "one"], "it is not sent again"
    [entry] = provider.undos()
    assert len(entry.data["times"]) == 2


@pytest.mark.contract("10.28")
async def test_notes_of_an_undone_turn_are_removed_if_they_are_unchanged(tmp_path: Path) -> None:
    noting = [
        calls("memory", "c1", action="add", target="user", content="Collects stamps."),
        calls("memory", "c2", action="add", target="memory", content="Lives in Graz."),
        calls("memory", "c3", action="replace", target="user", old_text="figs", content="Likes dates."),
        Reply("noted"),
    ]
    async with open_seam(tmp_path, noting) as agent:
        agent.notes.add("user", "Likes figs.")
        await say(agent, "remember that")
        agent.notes.replace("memory", "Graz", "Lives in Linz.")
        told = await take_back(agent)
        assert told.splitlines()[1:] == [
            "Removed from USER.md: Collects stamps.",
            "MEMORY.md was changed since, and stays as it is; noted was: Lives in Graz.",
            "USER.md stays as it was changed (replace): Likes dates.",
        ]
        assert agent.notes.read("user") == "Likes dates."
        assert agent.notes.read("memory") == "Lives in Linz."


@pytest.mark.contract("10.28")
async def test_a_retry_removes_the_notes_of_the_first_reply(tmp_path: Path) -> None:
    noting = calls("memory", "c1", action="add", target="user", content="Collects stamps.")
    provider = Undoer()
    async with open_seam(tmp_path, [noting, Reply("noted"), Reply("not noted")], provider) as agent:
        await say(agent, "remember that")
        events = await answer_again(agent)
        assert Notice("Removed from USER.md: Collects stamps.") in events
        assert agent.notes.read("user") == ""
        await settle(agent)
    assert [(e.data["action"], e.text or e.data["old"]) for e in provider.entries if e.kind == "note"] == [
        ("add", "Collects stamps."), ("remove", "Collects stamps."),
    ]  # fmt: skip


@pytest.mark.contract("10.25")
async def test_a_running_compression_does_not_summarise_undone_messages(tmp_path: Path) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()

    def script(request: ModelRequest) -> ScriptedAnswer:
        if not request.tools:  # the summary
            writing.set()
            return [go_on, Completed(Reply("They spoke of stamps and figs."))]
        return Reply("a long reply " * 400)

    async with open_seam(tmp_path, script, policy=Policy(review_every=0, keep_turns=1)) as agent:
        for number in range(5):
            await say(agent, f"figs {number}")
        agent.model = ScriptedModel(script, context_length=2_000)
        compressing = asyncio.create_task(compressor_of(agent).compress(agent.session_id))
        await writing.wait()
        await take_back(agent, 3)
        go_on.set()
        assert (await compressing).outcome == "failed"
        view = await agent.store.view(agent.session_id)
        assert (view.summary, len(view.tail)) == (None, 4)


@pytest.mark.contract("10.28")
async def test_a_running_review_notes_nothing_of_undone_messages(tmp_path: Path) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()
    noting = calls("memory", "c1", action="add", target="user", content="Collects stamps.")

    def script(request: ModelRequest) -> ScriptedAnswer:
        if any("You look after" in str(m["content"]) for m in request.messages[:1]):
            if request.messages[-1]["role"] == "tool":
                return Reply("done")
            reading.set()
            return [go_on, Completed(noting)]
        return Reply("fine")

    async with open_seam(tmp_path, script, policy=Policy(review_every=100)) as agent:
        await say(agent, "I collect stamps")
        reviewing = asyncio.create_task(review(agent))
        await reading.wait()
        await take_back(agent)
        go_on.set()
        await reviewing
        assert agent.notes.read("user") == ""


@pytest.mark.contract("10.25")
async def test_undo_waits_for_a_turn_in_another_process_and_can_be_stopped(tmp_path: Path) -> None:
    async with open_seam(tmp_path, [Reply("one")], policy=Policy(review_every=0, lane=LaneOptions(poll=0.01))) as agent:
        await say(agent, "stamps")
        stop = asyncio.Event()
        async with hold_lane(agent.store, agent.session_id, "another", LaneOptions()):
            waiting = asyncio.create_task(undo(agent, 1, "c", stop))
            stop.set()
            assert await waiting == UNCHANGED
            waiting = asyncio.create_task(take_back(agent))
            await agent.store.append(agent.session_id)
            assert not waiting.done()
        assert (await waiting).startswith("Took back")
        assert len(await agent.store.read(lambda tx: undone_at(tx, agent.session_id))) == 1
