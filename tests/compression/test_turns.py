"""Compression inside a turn: a wrong context window, the last check, silence, and /stop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from hermes.agent.agent import Policy
from hermes.agent.compress import compressor_of
from hermes.agent.loop import COMPRESSED
from hermes.compression.compressor import Request
from hermes.errors import NoteError
from hermes.events import Failed, Notice, Replied, Stopped
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.llm.tokens import view_tokens
from hermes.store.store import Store
from hermes.types import Draft, Message, ToolCall
from tests.compression.agents import make_agent, take_turn
from tests.compression.checks import check_lines, check_store
from tests.compression.conftest import ReadLog
from tests.compression.conversations import (
    WINDOW,
    is_summary_request,
    make_compressor,
    said,
    slow_summariser,
    summariser,
    talked,
    turns,
)
from tests.compression.hand_clock import HandClock
from tests.compression.strict_model import TOO_LONG, questions, strict_model, summaries
from tests.llm.scripted import ScriptedAnswer, ScriptedModel
from tests.memory.providers import PATIENT, Recorder, Troubled, hang

REVIEW = "You look after an assistant's notes."


@pytest.mark.contract("3.6", "3.13")
async def test_window_smaller_than_believed_is_answered_after_one_compression(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    model = strict_model(4_000, believed=128_000)
    agent = make_agent(store, session_id, model)
    events = await take_turn(agent, "are you there?")
    await agent.close()
    assert isinstance(events[-1], Replied)
    assert [event.text for event in events if isinstance(event, Notice)] == [COMPRESSED]
    assert len(questions(model)) == 2
    assert questions(model)[-1].messages[-1]["content"] == "are you there?"
    assert [line.word for line in read_log()] == ["started", "done"]
    assert await check_store(store, await said(store, session_id), read_log()) == []


@pytest.mark.contract("3.6")
async def test_model_that_finds_everything_too_long_fails_the_turn_clearly_and_once(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    model = ScriptedModel(lambda _: TOO_LONG, context_length=128_000)
    agent = make_agent(store, session_id, model)
    events = await take_turn(agent, "are you there?")
    await agent.close()
    assert isinstance(events[-1], Failed)
    assert events[-1].kind == "context_too_long"
    assert len(questions(model)) == 2
    assert len(read_log()) == 2


@pytest.mark.contract("3.5", "3.13")
async def test_request_over_the_threshold_is_compressed_first_and_sees_its_own_question(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store)
    model = strict_model(WINDOW)
    agent = make_agent(store, session_id, model)
    events = await take_turn(agent, "what was it about?")
    [notice] = [event.text for event in events if isinstance(event, Notice)]
    assert notice.startswith("Compressed: ~6,5")
    assert f"`hermes sessions show {session_id}.snapshot." in notice
    [request] = questions(model)
    assert [message["role"] for message in request.messages[:3]] == ["system", "user", "user"]
    assert "question 0" in request.messages[1]["content"]
    assert "they spoke of stamps" in request.messages[2]["content"]
    assert request.messages[-1]["content"] == "what was it about?"
    again = await take_turn(agent, "and besides?")
    assert not any(isinstance(event, Notice) for event in again)
    await agent.close()
    assert len(read_log()) == 2


async def incognito_between(store: Store, session_id: str) -> None:
    await store.write(lambda tx: store.incognito.begin(tx, session_id))
    await store.append(session_id, Draft("user", "my secret is 42"), Draft("assistant", "noted nowhere"))
    await store.write(lambda tx: store.incognito.end(tx, session_id))


@pytest.mark.contract("3.7", "4.6")
async def test_notes_and_provider_see_leaving_messages_but_no_incognito_ones(store: Store, tmp_path: Path) -> None:
    session_id = (await store.create_session("test")).id
    await incognito_between(store, session_id)
    await store.append(session_id, *turns(30))
    witness = Recorder()
    reviewed: list[str] = []
    epochs: list[int] = []

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if is_summary_request(request):
            return Reply("they spoke of stamps")
        if not str(request.messages[0]["content"]).startswith(REVIEW):
            return Reply("hello to you")
        reviewed.append(str(request.messages[1]["content"]))
        if len(reviewed) > 1:
            return Reply("done")
        arguments = '{"action": "add", "target": "memory", "content": "collects stamps from Malta"}'
        return Reply(tool_calls=(ToolCall("c1", "memory", arguments),))

    model = ScriptedModel(answer, context_length=WINDOW)
    agent = make_agent(store, session_id, model, policy=Policy(review_every=6), plugin=witness)
    await agent.memory.prompt_block(agent.memory.begin())
    before = await store.view(session_id)
    result = await compressor_of(agent).compress(session_id)
    epochs.append((await store.view(session_id)).epoch)
    await agent.close()

    assert result.outcome == "done"
    stayed = {message.id for message in result.messages}
    left = [message for message in before.messages if message.id not in stayed and "secret" not in str(message.content)]
    [(shown,)] = witness.called("before_compress")
    assert [message.id for message in shown] == [m.id for m in left if m.content != "noted nowhere"]
    assert len(witness.called("open")) == 1, "the summariser opened no session of its own"
    assert reviewed
    assert "question 3" in reviewed[0]
    assert not any("secret" in text for text in reviewed)
    assert "collects stamps from Malta" in agent.notes.read("memory")


@pytest.mark.contract("3.7", "P4")
async def test_provider_that_hangs_delays_the_swap_by_its_deadline_alone(store: Store) -> None:
    session_id = await talked(store)
    plugin = Troubled("before_compress", hang)
    agent = make_agent(store, session_id, summariser(), plugin=plugin, deadlines=replace(PATIENT, compress=0.5))
    await agent.memory.prompt_block(agent.memory.begin())
    async with asyncio.timeout(15):  # shorter than a last look may take
        result = await compressor_of(agent).compress(session_id)
    assert result.outcome == "done"
    assert plugin.hooks().count("before_compress") == 1
    await agent.close()


@pytest.mark.contract("3.7", "4.6")
async def test_a_compression_opens_no_provider_session(store: Store) -> None:
    session_id, plugin = await talked(store), Recorder()
    agent = make_agent(store, session_id, summariser(), plugin=plugin)
    assert (await compressor_of(agent).compress(session_id)).outcome == "done"
    await agent.close()
    assert plugin.calls == []


@pytest.mark.contract("3.7")
@pytest.mark.parametrize("fault", ["hangs", "fails"])
async def test_last_look_that_hangs_or_fails_does_not_keep_a_session_from_being_compressed(
    store: Store, log_file: Path, fault: str
) -> None:
    session_id = await talked(store)
    swaps: list[int] = []

    async def look(_: Sequence[Message]) -> None:
        with closing(sqlite3.connect(store.db.path)) as file:  # at once: its time is short
            swaps.append(file.execute("SELECT count(*) FROM hermes_compressions").fetchone()[0])
        if fault == "fails":
            raise NoteError("the notes are full")
        await asyncio.Event().wait()

    compressor = make_compressor(store, summariser(), last_look=look, last_look_deadline=0.05)
    assert (await compressor.compress(session_id)).outcome == "done"
    assert swaps == [0], "it was shown before the swap"
    assert "the last look before compression" in log_file.read_text(encoding="utf-8")


async def silent_agent_store(tmp_path: Path, clock: HandClock) -> Store:
    return await Store.open(tmp_path / "silent.db", clock=clock, lock_timeout=10.0)


@pytest.mark.contract("4.12")
async def test_long_session_is_compressed_when_nobody_speaks_for_a_while(tmp_path: Path, read_log: ReadLog) -> None:
    clock = HandClock()
    async with await silent_agent_store(tmp_path, clock) as store:
        session_id = await talked(store, 18)
        model = strict_model(WINDOW, replies=[Reply("a long answer " * 150)])
        agent = make_agent(store, session_id, model, policy=Policy(review_every=0, compress_idle=30.0))
        events = await take_turn(agent, "tell me more")
        assert not any(isinstance(event, Notice) for event in events)
        idle = agent.idle_work
        assert idle is not None
        await clock.sleeper(30.0)
        clock.advance(31.0)
        await idle
        assert (await store.view(session_id)).epoch == 1
        assert [line.word for line in read_log()] == ["started", "done"]
        assert not any(isinstance(event, Notice) for event in await take_turn(agent, "go on"))
        await agent.close()


@pytest.mark.contract("3.13")
async def test_without_automatic_compression_only_the_hard_limit_and_a_person_start_one(
    store: Store, read_log: ReadLog
) -> None:
    policy = Policy(review_every=0, compress_idle=30.0, compresses_itself=False)
    session_id = await talked(store, 22)
    agent = make_agent(store, session_id, strict_model(WINDOW), policy=policy)
    policy_of_window = compressor_of(agent).policy
    assert policy_of_window.limit < view_tokens(await store.view(session_id)) < policy_of_window.hard_limit
    assert isinstance((await take_turn(agent, "go on"))[-1], Replied)
    assert agent.idle_work is None
    assert read_log() == []
    await store.append(session_id, *turns(8, start=22))
    assert isinstance((await take_turn(agent, "and now?"))[-1], Replied)
    assert [line.word for line in read_log()] == ["started", "done"]
    await store.append(session_id, *turns(10, start=30))
    assert (await compressor_of(agent).compress(session_id, Request())).outcome == "done"
    await agent.close()


@pytest.mark.contract("4.12")
async def test_short_session_is_left_alone_however_long_the_silence(tmp_path: Path, read_log: ReadLog) -> None:
    clock = HandClock()
    async with await silent_agent_store(tmp_path, clock) as store:
        session_id = await talked(store, 3)
        model = strict_model(WINDOW)
        agent = make_agent(store, session_id, model, policy=Policy(review_every=0, compress_idle=30.0))
        await take_turn(agent, "hello")
        idle = agent.idle_work
        assert idle is not None
        await clock.sleeper(30.0)
        clock.advance(31.0)
        await idle
        await agent.close()
        assert read_log() == []


@pytest.mark.contract("4.12")
@pytest.mark.parametrize("next_is", ["a turn", "the end"])
async def test_new_message_stops_a_compression_that_silence_started(
    tmp_path: Path, read_log: ReadLog, next_is: str
) -> None:
    clock = HandClock()
    asked = asyncio.Event()
    hanging = [True]

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if is_summary_request(request):
            asked.set()
            return [asyncio.Event(), Completed(Reply("never"))] if hanging[0] else Reply("they spoke of stamps")
        return Reply("a long answer " * 150)

    async with await silent_agent_store(tmp_path, clock) as store:
        session_id = await talked(store, 18)
        model = ScriptedModel(answer, context_length=WINDOW)
        agent = make_agent(store, session_id, model, policy=Policy(review_every=0, compress_idle=30.0))
        await take_turn(agent, "tell me more")
        await clock.sleeper(30.0)
        clock.advance(31.0)
        await asked.wait()
        hanging[0] = False
        if next_is == "a turn":
            assert isinstance((await take_turn(agent, "I am back"))[-1], Replied)
            assert [line.word for line in read_log()][:4] == ["started", "failed", "started", "done"]
        async with asyncio.timeout(60):
            await agent.close()
        assert check_lines(read_log()) == []
        assert await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.13")
async def test_stop_ends_a_turn_that_waits_for_its_compression(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store)
    asked, stop = asyncio.Event(), asyncio.Event()
    agent = make_agent(store, session_id, slow_summariser(asked, asyncio.Event()))
    running = asyncio.create_task(take_turn(agent, "are you there?", stop))
    await asked.wait()
    stop.set()
    async with asyncio.timeout(60):
        events = await running
    assert isinstance(events[-1], Stopped)
    assert [line.word for line in read_log()] == ["started", "failed"]
    assert (await store.view(session_id)).epoch == 0
    await agent.close()
    assert (await make_compressor(store, summariser()).compress(session_id)).outcome == "done"


@pytest.mark.contract("3.3")
async def test_request_that_must_fit_waits_for_the_compression_of_another_process(
    store: Store, read_log: ReadLog
) -> None:
    session_id = await talked(store, 60)
    asked, go_on = asyncio.Event(), asyncio.Event()
    other = asyncio.create_task(make_compressor(store, slow_summariser(asked, go_on)).compress(session_id))
    await asked.wait()
    model = strict_model(WINDOW)
    agent = make_agent(store, session_id, model)
    turn = asyncio.create_task(take_turn(agent, "are you there?"))
    async with asyncio.timeout(60):
        while not any(line.word == "busy" for line in read_log()):  # noqa: ASYNC110 - the log gives no event
            await asyncio.sleep(0.01)
    go_on.set()
    assert (await other).outcome == "done"
    async with asyncio.timeout(100):
        events = await turn
    assert isinstance(events[-1], Replied)
    assert summaries(model) == []
    assert "they spoke of stamps" in questions(model)[0].messages[2]["content"]
    assert sum(line.word == "busy" for line in read_log()) == 1
    await agent.close()


async def test_focus_of_a_manual_request_reaches_the_model(store: Store) -> None:
    session_id = await talked(store)
    model = summariser()
    await make_compressor(store, model).compress(session_id, Request(focus="the prices"))
    assert "Pay special attention to: the prices" in str(model.requests[0].messages[1]["content"])
