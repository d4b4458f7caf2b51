"""Failing reviews: counted on the disk, retried with growing waits, behind other sessions, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.agent.agent import Agent, Policy
from hermes.agent.leftovers import MAX_FAILURES_IN_A_ROW, process_leftovers
from hermes.agent.review import PROMPT, review_now
from hermes.doctor import examine
from hermes.home import Home
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.llm.model import ModelRequest
from hermes.store.reviews import MAX_ATTEMPTS, RETRY_DELAYS_SECONDS
from hermes.store.store import Store
from tests.agent.agents import lending, make_agent, take_turn
from tests.agent.seam import AdvancedClock, open_seam, requests, say
from tests.gateway.processes import rows
from tests.llm.scripted import ScriptedAnswer, ScriptedModel

SELDOM = Policy(review_every=6)
TRIES = "SELECT tries FROM hermes_reviews_due"


def is_review(request: ModelRequest) -> bool:
    return bool(request.messages[0]["content"] == PROMPT)


def failing(request: ModelRequest) -> ScriptedAnswer:
    return ModelFailed("server", "on fire", retryable=False) if is_review(request) else Reply("I see")


def asked(agent: Agent) -> int:
    return len([request for request in requests(agent) if is_review(request)])


@pytest.mark.contract("4.12")
async def test_a_failing_review_backs_off_and_is_given_up_until_the_next_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = AdvancedClock()
    async with open_seam(tmp_path, failing, None, SELDOM, clock=clock) as agent:
        await say(agent, "I like figs")
        for tries, wait in enumerate(RETRY_DELAYS_SECONDS, 1):
            assert not await review_now(agent)
            await review_now(agent)
            clock.ahead += wait - 60
            await review_now(agent)
            assert (asked(agent), rows(tmp_path, TRIES)) == (tries, [(tries,)]), "it waits"
            clock.ahead += 61
        assert not any(finding.check == "reviews" for finding in examine(Home(tmp_path), clock))
        for _ in range(3):
            await review_now(agent)
            clock.ahead += 10 * RETRY_DELAYS_SECONDS[-1]
        assert (asked(agent), rows(tmp_path, TRIES)) == (MAX_ATTEMPTS, [(MAX_ATTEMPTS,)])
        assert await agent.store.unreviewed(clock.now(), 10) == []
        assert [f.code for f in examine(Home(tmp_path), clock) if f.check == "reviews"] == ["reviews-given-up"]
        await say(agent, "and dates")
        await review_now(agent)
        assert (asked(agent), rows(tmp_path, TRIES)) == (MAX_ATTEMPTS + 1, [(1,)])
    assert len([record for record in caplog.records if "waits until something new" in record.getMessage()]) == 1


@pytest.mark.contract("4.12")
async def test_a_review_that_is_cut_off_soon_rests_and_counts_as_no_try(tmp_path: Path) -> None:
    clock, begun = AdvancedClock(), asyncio.Event()
    async with open_seam(tmp_path, hanging(begun), None, SELDOM, clock=clock) as agent:
        await say(agent, "I like figs")
        for _ in range(2):
            await cut_off(agent, begun)
            await review_now(agent)
            assert rows(tmp_path, TRIES) == [(0,)]
            clock.ahead += RETRY_DELAYS_SECONDS[0] + 1
        assert asked(agent) == 2


@pytest.mark.contract("4.12")
async def test_a_review_that_takes_too_long_counts_as_a_try(tmp_path: Path) -> None:
    policy = Policy(review_every=6, review_deadline=0.05)
    async with open_seam(tmp_path, hanging(asyncio.Event()), None, policy) as agent:
        await say(agent, "I like figs")
        assert not await review_now(agent)
        assert rows(tmp_path, TRIES) == [(1,)]


def hanging(begun: asyncio.Event) -> Callable[[ModelRequest], ScriptedAnswer]:
    def answer(request: ModelRequest) -> ScriptedAnswer:
        if not is_review(request):
            return Reply("I see")
        begun.set()
        return [asyncio.Event(), Completed(Reply("done"))]

    return answer


async def cut_off(agent: Agent, begun: asyncio.Event) -> None:
    begun.clear()
    reviewing = asyncio.create_task(review_now(agent))
    await begun.wait()
    reviewing.cancel()
    await asyncio.wait({reviewing})


@pytest.mark.contract("4.12")
async def test_a_session_whose_review_fails_comes_behind_the_others(tmp_path: Path) -> None:
    clock = AdvancedClock()
    async with await Store.open(tmp_path / "state.db", clock=clock, lock_timeout=30.0) as store:
        for number in range(MAX_FAILURES_IN_A_ROW + 2):
            session = await store.create_session("cli")
            agent = make_agent(store, session.id, ScriptedModel([Reply("I see")]))
            agent.policy = SELDOM
            await take_turn(agent, f"message {number}")

        def say_nothing(request: ModelRequest) -> ScriptedAnswer:
            return Reply("done") if "message 4" in str(request.messages[1]["content"]) else failing(request)

        model, left = ScriptedModel(say_nothing), clock.now()
        for _ in range(2):
            await process_leftovers(store, lambda _: True, lending(store, model, SELDOM), left)
            clock.ahead += RETRY_DELAYS_SECONDS[0] + 1
    read = [str(request.messages[1]["content"]).split("user: ")[1].splitlines()[0] for request in model.requests]
    first, second = read[:MAX_FAILURES_IN_A_ROW], read[MAX_FAILURES_IN_A_ROW:]
    assert first == ["message 0", "message 1", "message 2"], "the rest is left for later: the model may be away"
    assert second[:2] == ["message 3", "message 4"]


@pytest.mark.contract("4.12")
async def test_a_later_look_takes_what_failed_and_not_what_is_being_talked_of(tmp_path: Path) -> None:
    clock = AdvancedClock()
    async with open_seam(tmp_path, failing, None, SELDOM, clock=clock) as agent:
        started = clock.now()
        clock.ahead += 1
        await say(agent, "I like figs")
        assert await agent.store.unreviewed(started, 10) == []
        await review_now(agent)
        assert await agent.store.unreviewed(started, 10) == []
        clock.ahead += RETRY_DELAYS_SECONDS[0] + 1
        assert [session.id for session in await agent.store.unreviewed(started, 10)] == [agent.session_id]
