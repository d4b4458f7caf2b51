"""The background review: outside of turns, bounded, every few turns, and never the same message twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.agent.agent import Agent, Policy
from hermes.agent.review import MAX_REVIEW_CHARS, PROMPT, review
from hermes.events import Accepted, MemoryUpdated, Replied
from hermes.llm.events import Completed, ModelFailed, Reply
from hermes.llm.model import ModelRequest
from hermes.store.hidden import FORGOTTEN, hide_rows
from hermes.store.reviews import RETRY_DELAYS_SECONDS, reviewed_upto, take_remarks
from hermes.types import Draft
from tests.agent.seam import AdvancedClock, calls, finish, open_seam, requests, say
from tests.llm.scripted import ScriptedAnswer, ScriptStep
from tests.memory.providers import Recorder

EVERY_TURN = Policy(review_every=1)
ON_FIRE = ModelFailed("server", "on fire", retryable=False)


def is_review(request: ModelRequest) -> bool:
    return bool(request.messages[0]["content"] == PROMPT)


def answering(*reviews: ScriptedAnswer) -> Callable[[ModelRequest], ScriptedAnswer]:
    """Return a model that replies to people at once, and reviews as scripted."""
    script = iter(reviews)
    return lambda request: next(script) if is_review(request) else Reply("reply")


def reviews(agent: Agent) -> list[str]:
    """Return the first request of each review."""
    asked = [r.messages[1]["content"] for r in requests(agent) if is_review(r) and len(r.messages) == 2]
    return [str(text).split("New conversation:\n")[1] for text in asked]


async def read_by_a_review(agent: Agent) -> None:
    """Wait until a review has read the conversation and calls its model."""
    for _ in range(3000):
        if reviews(agent):
            return
        await asyncio.sleep(0.01)
    pytest.fail("no review has begun")


async def mark(agent: Agent) -> int:
    return await agent.store.read(lambda tx: reviewed_upto(tx, agent.session_id))


@pytest.mark.contract("4.12")
async def test_a_turn_ends_before_its_review_is_answered(tmp_path: Path) -> None:
    gate = asyncio.Event()
    slow: list[ScriptStep] = [gate, Completed(calls("memory", action="add", target="user", content="likes figs"))]
    provider = Recorder()
    async with open_seam(tmp_path, answering(slow, Reply("done")), provider, EVERY_TURN) as agent:
        events = await say(agent, "I like figs")
        assert isinstance(events[-1], Replied)
        assert agent.notes.read("user") == ""
        gate.set()
        await finish(agent)
        assert agent.notes.read("user") == "likes figs"
        assert provider.told("note") == ["likes figs"]
        assert reviews(agent) == ["user: I like figs\nassistant: reply"]


@pytest.mark.contract("4.10", "4.12")
@pytest.mark.parametrize("last", [Reply("done"), [ON_FIRE]], ids=["that ends well", "that fails after it"])
async def test_notices_of_a_review_wait_until_they_are_shown(tmp_path: Path, last: ScriptedAnswer) -> None:
    note = calls("memory", action="add", target="user", content="likes figs")
    async with open_seam(tmp_path, answering(note, last), None, EVERY_TURN) as agent:
        await say(agent, "I like figs")
        await finish(agent)
        await agent.close()
        told = await agent.store.write(lambda tx: take_remarks(tx, agent.scope))
        assert told == [MemoryUpdated("user", "add", "likes figs")]


@pytest.mark.contract("4.6", "4.12")
async def test_a_review_is_no_turn_and_no_session_to_the_provider(tmp_path: Path) -> None:
    provider = Recorder()
    async with open_seam(tmp_path, answering(*[Reply("done")] * 9), provider, EVERY_TURN) as agent:
        for number in range(3):
            await say(agent, f"message {number}")
            await finish(agent)
        assert len(reviews(agent)) == 3
    for hook, times in {"open": 1, "recall": 3, "close": 1}.items():
        assert provider.hooks().count(hook) == times, hook
    kinds = [entry.kind for entry in provider.entries]
    assert {kind: kinds.count(kind) for kind in kinds} == {"said": 3, "reply": 3}


@pytest.mark.contract("4.12")
async def test_a_review_runs_every_few_turns_and_reads_what_is_new(tmp_path: Path) -> None:
    script = answering(*[Reply("done")] * 9)
    async with open_seam(tmp_path, script, None, Policy(review_every=2)) as agent:
        for number in range(5):
            await say(agent, f"message {number}")
            await finish(agent)
        assert reviews(agent) == [
            "user: message 0\nassistant: reply\nuser: message 1\nassistant: reply",
            "user: message 2\nassistant: reply\nuser: message 3\nassistant: reply",
        ]


@pytest.mark.contract("4.11", "4.12")
async def test_an_incognito_turn_brings_the_next_review_no_nearer(tmp_path: Path) -> None:
    script = answering(*[Reply("done")] * 9)
    async with open_seam(tmp_path, script, None, Policy(review_every=2)) as agent:
        incognito, session_id = agent.store.incognito, agent.session_id
        await say(agent, "message 0")
        await agent.store.write(lambda tx: incognito.begin(tx, session_id))
        await say(agent, "a secret")
        await agent.store.write(lambda tx: incognito.end(tx, session_id))
        await say(agent, "message 1")
        await finish(agent)
        assert reviews(agent) == ["user: message 0\nassistant: reply\nuser: message 1\nassistant: reply"]


@pytest.mark.contract("4.12")
async def test_a_failed_review_is_repeated_and_a_done_one_is_not_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = AdvancedClock()
    async with open_seam(tmp_path, answering(ON_FIRE, Reply("done")), None, EVERY_TURN, clock=clock) as agent:
        await say(agent, "first")
        await finish(agent)
        assert await mark(agent) == 0
        clock.ahead = RETRY_DELAYS_SECONDS[0] + 1
        await say(agent, "second")
        await finish(agent)
        both = "user: first\nassistant: reply\nuser: second\nassistant: reply"
        assert reviews(agent) == ["user: first\nassistant: reply", both]
        assert await mark(agent) == 4
        session = agent.session_id
    assert [record.getMessage() for record in caplog.records if record.name == "hermes.review"] == [
        f"the review of session {session} failed: on fire"
    ]
    async with open_seam(tmp_path, answering(Reply("done")), None, EVERY_TURN) as agent:
        agent.session_id = session
        await say(agent, "third")
        await finish(agent)
        assert reviews(agent) == ["user: third\nassistant: reply"]


@pytest.mark.contract("4.12")
@pytest.mark.parametrize("policy", [Policy(review_every=0), Policy(review_every=1, tools_off=frozenset({"memory"}))])
async def test_reviews_can_be_switched_off(tmp_path: Path, policy: Policy) -> None:
    async with open_seam(tmp_path, answering(), None, policy) as agent:
        await say(agent, "hello")
        assert not agent.background
        await review(agent)
        assert reviews(agent) == []


@pytest.mark.contract("4.12")
async def test_without_a_model_there_is_no_review(tmp_path: Path) -> None:
    async with open_seam(tmp_path, answering(), None, EVERY_TURN) as agent:
        agent.answers_from_memory = True
        await say(agent, "hello")
        assert not agent.background


@pytest.mark.contract("4.12")
async def test_a_review_that_hangs_is_given_up_at_its_deadline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    never: list[ScriptStep] = [asyncio.Event(), Completed(Reply("done"))]
    policy = Policy(review_every=1, review_deadline=0.05)
    async with open_seam(tmp_path, answering(never), None, policy) as agent:
        await say(agent, "hello")
        await finish(agent)
        assert await mark(agent) == 0
    assert "took too long" in caplog.text


async def test_one_review_runs_at_a_time_and_the_next_reads_the_rest(tmp_path: Path) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()
    script = answering([gate, Completed(Reply("done"))], Reply("done"))

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if is_review(request):
            asked.set()
        return script(request)

    async with open_seam(tmp_path, answer, None, EVERY_TURN) as agent:
        await say(agent, "first")
        await asked.wait()
        await say(agent, "second")
        assert len(agent.background) == 1
        gate.set()
        await finish(agent)
        await say(agent, "third")
        await finish(agent)
        assert reviews(agent)[1].startswith("user: second")


async def test_closing_waits_for_a_review_within_a_deadline_and_then_ends_it(tmp_path: Path) -> None:
    never: list[ScriptStep] = [asyncio.Event(), Completed(Reply("done"))]
    provider = Recorder()
    async with open_seam(tmp_path, answering(never), provider, EVERY_TURN) as agent:
        await say(agent, "hello")
        [running] = agent.background
        await agent.close(deadline=0.05)
        assert running.cancelled()
        assert await mark(agent) == 0
        assert provider.hooks()[-1] == "close"


async def test_a_long_conversation_is_reviewed_piece_by_piece_from_its_beginning(tmp_path: Path) -> None:
    script = answering(*[Reply("done")] * 9)
    async with open_seam(tmp_path, script, None, EVERY_TURN) as agent:
        texts = [f"{number} " + "x" * (MAX_REVIEW_CHARS // 2) for number in range(3)]
        texts.append("whole " + "y" * MAX_REVIEW_CHARS * 2)
        for text in texts:
            await agent.store.append(agent.session_id, Draft("user", text), Draft("tool", "z" * MAX_REVIEW_CHARS))
        for _ in range(6):
            await review(agent)
        seen = reviews(agent)
        assert [text[:8] for text in seen] == ["user: 0 ", "user: 1 ", "user: 2 ", "user: wh"]
        assert all(len(text) <= MAX_REVIEW_CHARS for text in seen)


async def test_notes_that_cannot_be_read_end_a_review_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_seam(tmp_path, answering(Reply("done")), None, EVERY_TURN) as agent:
        await say(agent, "hello")
        await finish(agent)
        (tmp_path / "memories").mkdir(exist_ok=True)
        (tmp_path / "memories" / "USER.md").write_bytes(b"\xff")
        await say(agent, "again")
        await finish(agent)
    [line] = [record.getMessage() for record in caplog.records if record.name == "hermes.review"]
    assert "cannot read" in line


@pytest.mark.contract("1.8", "4.12")
async def test_a_review_of_a_session_deleted_meanwhile_notes_nothing(tmp_path: Path) -> None:
    gate = asyncio.Event()
    slow: list[ScriptStep] = [gate, Completed(calls("memory", action="add", target="user", content="likes figs"))]
    async with open_seam(tmp_path, answering(slow, Reply("done")), None, EVERY_TURN) as agent:
        await say(agent, "I like figs")
        await read_by_a_review(agent)
        await agent.store.write(lambda tx: agent.store.deletions.delete(tx, agent.session_id))
        gate.set()
        await finish(agent)
        assert agent.notes.read("user") == ""
        assert await agent.store.write(lambda tx: take_remarks(tx, agent.scope)) == []


@pytest.mark.contract("7.12", "4.12")
async def test_a_review_that_read_forgotten_messages_notes_nothing_and_is_repeated(tmp_path: Path) -> None:
    gate = asyncio.Event()
    note = calls("memory", action="add", target="user", content="likes figs")
    slow: list[ScriptStep] = [gate, Completed(note)]
    async with open_seam(tmp_path, answering(slow, Reply("done"), Reply("done")), None, EVERY_TURN) as agent:
        [accepted, *_] = [event for event in await say(agent, "I like figs") if isinstance(event, Accepted)]
        await read_by_a_review(agent)
        await agent.store.write(
            lambda tx: hide_rows(tx, [accepted.message_id], FORGOTTEN, now=1.0, hidden_from="memory")
        )
        gate.set()
        await finish(agent)
        assert agent.notes.read("user") == ""
        await review(agent)
        assert reviews(agent)[-1] == "assistant: reply"
