"""Failed summaries: nothing is removed, one notice appears, and the session always answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.compression.compressor import Request
from hermes.compression.summarise import OPENING
from hermes.events import Notice, Replied
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.llm.model import ModelRequest
from hermes.store.store import Store
from tests.compression.agents import make_agent, take_turn
from tests.compression.checks import check_lines, check_store
from tests.compression.conftest import ReadLog
from tests.compression.conversations import (
    WINDOW,
    is_summary_request,
    make_compressor,
    said,
    summariser,
    talked,
    turns,
)
from tests.compression.hand_clock import HandClock
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

FITTING = 22
"""Turns above the threshold of the window and below its hard limit."""

FAILURES: dict[str, Callable[[], ScriptedAnswer]] = {
    "error": lambda: ModelFailed("server", "answered 500", retryable=True),
    "empty": lambda: Reply("  "),
    "longer than its input": lambda: Reply("they spoke of stamps " * 9000),
    "far too long": lambda: Reply("they spoke of stamps " * 800),
    "refusal": lambda: Reply("I'm sorry, but I cannot help with that."),
    "fence only": lambda: Reply("<memory-context>x</memory-context>"),
}


def answering(summary: Callable[[], ScriptedAnswer], window: int = WINDOW) -> ScriptedModel:
    """A model that answers every question, and summarizes as scripted."""

    def answer(request: ModelRequest) -> ScriptedAnswer:
        return summary() if is_summary_request(request) else Reply("here I am")

    return ScriptedModel(answer, context_length=window)


def summaries_asked(model: ScriptedModel) -> int:
    return sum(map(is_summary_request, model.requests))


@pytest.mark.contract("3.6")
@pytest.mark.parametrize("kind", FAILURES)
async def test_failed_summary_removes_nothing_and_is_reported_once(store: Store, read_log: ReadLog, kind: str) -> None:
    session_id = await talked(store, FITTING)
    model = answering(FAILURES[kind])
    agent = make_agent(store, session_id, model)
    first = await take_turn(agent, "are you there?")
    second = await take_turn(agent, "and now?")
    await agent.close()
    notices = [event.text for event in [*first, *second] if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "nothing was removed" in notices[0]
    assert all(isinstance(events[-1], Replied) for events in (first, second))
    assert (await store.view(session_id)).epoch == 0
    assert summaries_asked(model) == 1
    assert [line.word for line in read_log()] == ["started", "failed"]
    assert await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.6")
async def test_summary_that_takes_too_long_is_given_up(store: Store) -> None:
    session_id = await talked(store)
    never = ScriptedModel(lambda _: [asyncio.Event(), Completed(Reply("too late"))], context_length=WINDOW)
    result = await make_compressor(store, never, deadline=0.05).compress(session_id)
    assert (result.outcome, result.reason) == ("failed", "the model took longer than 0.05 s")
    assert (await store.view(session_id)).epoch == 0


@pytest.mark.contract("3.6")
async def test_back_off_grows_survives_a_restart_and_does_not_delay_manual_requests(tmp_path: Path) -> None:
    clock = HandClock()
    path = tmp_path / "state.db"
    broken = summariser("  ")
    automatic = Request(automatic=True)
    async with await Store.open(path, clock=clock, lock_timeout=10.0) as store:
        session_id = await talked(store)
        assert (await make_compressor(store, broken).compress(session_id, automatic)).outcome == "failed"
    for wait in (60.0, 120.0, 240.0):
        async with await Store.open(path, clock=clock, lock_timeout=10.0) as store:
            compressor = make_compressor(store, broken)
            clock.advance(wait - 1.0)
            asked = len(broken.requests)
            assert not await compressor.would_try(session_id, automatic)
            skipped = await compressor.compress(session_id, automatic)
            assert (skipped.outcome, len(broken.requests)) == ("skipped", asked)
            clock.advance(1.0)
            assert await compressor.would_try(session_id, automatic)
            assert (await compressor.compress(session_id, automatic)).outcome == "failed"
    async with await Store.open(path, clock=clock, lock_timeout=10.0) as store:
        asked_for = await make_compressor(store, summariser()).compress(session_id, Request(focus="prices"))
        assert asked_for.outcome == "done"
        await store.append(session_id, *turns(20, start=200))
        assert await make_compressor(store, broken).would_try(session_id, automatic)


@pytest.mark.contract("3.6")
@pytest.mark.parametrize("kind", FAILURES)
async def test_at_the_hard_limit_a_digest_is_used_and_the_session_answers(store: Store, kind: str) -> None:
    session_id = await talked(store, 60)
    model = answering(FAILURES[kind])
    agent = make_agent(store, session_id, model)
    events = await take_turn(agent, "what did we say of stamps?")
    await agent.close()
    assert isinstance(events[-1], Replied)
    assert any(isinstance(event, Notice) and "a digest was used" in event.text for event in events)
    view = await store.view(session_id)
    assert view.summary is not None
    assert view.summary.startswith(OPENING)
    assert await check_store(store, await said(store, session_id)) == []


@pytest.mark.contract("3.6", "P5")
async def test_second_consecutive_failure_is_only_logged(tmp_path: Path, read_log: ReadLog) -> None:
    clock = HandClock()
    async with await Store.open(tmp_path / "state.db", clock=clock, lock_timeout=10.0) as store:
        session_id = await talked(store, FITTING)
        agent = make_agent(store, session_id, answering(FAILURES["error"]))
        first = await take_turn(agent, "are you there?")
        clock.advance(61.0)
        second = await take_turn(agent, "and now?")
        await agent.close()
    assert sum(isinstance(event, Notice) for event in first) == 1
    assert not any(isinstance(event, Notice) for event in second)
    assert [line.word for line in read_log()] == ["started", "failed"] * 2


@pytest.mark.contract("3.6", "P5")
async def test_failing_summaries_do_not_fill_the_log(store: Store, read_log: ReadLog) -> None:
    session_id = await talked(store, FITTING)
    agent = make_agent(store, session_id, answering(FAILURES["error"]))
    for number in range(10):
        assert isinstance((await take_turn(agent, f"short {number}"))[-1], Replied)
    await agent.close()
    assert len(read_log()) == 2
    assert check_lines(read_log()) == []
