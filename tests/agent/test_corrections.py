"""Facts that a person corrected or forgot do not return: not by a review, a model's own note, or recall."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.agent.agent import Agent, Policy
from hermes.agent.offline import Inquiry
from hermes.agent.recollection import recollect
from hermes.agent.review import PROMPT, review
from hermes.db import queue
from hermes.db.queue_items import find
from hermes.errors import StoreFullError
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.memory.corrections import Corrections
from hermes.memory.forgetting import find_kept, forget_kept
from hermes.memory.likeness import fact_words
from hermes.memory.outbox import queue_name
from hermes.memory.values import Wording
from hermes.scope import OWNER
from hermes.store.corrections import MAX_CORRECTIONS, Correction, corrections_of, keep_correction, keep_forgotten
from tests.agent.seam import calls, finish, open_seam, requests, say
from tests.llm.scripted import ScriptedAnswer
from tests.memory.providers import Recorder

pytestmark = pytest.mark.contract("10.41")
REX, MAX = "Has a dog called Rex", "Has a dog called Max"


def model(*noted: str) -> Callable[[ModelRequest], ScriptedAnswer]:
    """Return a model whose reviews note these facts one after another, and that replies to people at once."""
    notes = [Reply("done"), *(calls("memory", action="add", target="user", content=text) for text in reversed(noted))]

    def answer(request: ModelRequest) -> ScriptedAnswer:
        return notes.pop() if request.messages[0]["content"] == PROMPT else Reply("reply")

    return answer


async def correct(agent: Agent, text: str) -> None:
    """Correct the first note; `right` "" forgets it."""
    [entry, *_] = (await agent.book.page()).entries
    await (agent.book.correct(entry, text) if text else agent.book.forget(entry))


@pytest.mark.parametrize("said_again", [REX, "The user's dog is Rex", "Owns a dog named Rex.", "has a dog, rex"])
@pytest.mark.parametrize("right", [MAX, ""], ids=["corrected", "forgotten"])
async def test_a_review_does_not_repeat_corrected_or_forgotten_facts(
    tmp_path: Path, said_again: str, right: str
) -> None:
    async with open_seam(tmp_path, model(said_again, "Lives in Oslo"), None, Policy(review_every=2)) as agent:
        agent.notes.add("user", REX)
        await correct(agent, right)
        await say(agent, "My dog is called Rex.")
        await say(agent, "I live in Oslo.")
        await finish(agent)
        assert agent.notes.entries("user") == [*([right] if right else []), "Lives in Oslo"]


@pytest.mark.parametrize("right", [MAX, ""], ids=["corrected", "forgotten"])
async def test_a_running_review_respects_corrections_made_meanwhile(tmp_path: Path, right: str) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()

    def script(request: ModelRequest) -> ScriptedAnswer:
        if request.messages[0]["content"] != PROMPT:
            return Reply("fine")
        if request.messages[-1]["role"] == "tool":
            return Reply("done")
        reading.set()
        return [go_on, Completed(calls("memory", action="add", target="user", content=REX))]

    async with open_seam(tmp_path, script, None, policy=Policy(review_every=100)) as agent:
        agent.notes.add("user", REX)
        await say(agent, "My dog is called Rex")
        reviewing = asyncio.create_task(review(agent))
        await reading.wait()
        await correct(agent, right)
        go_on.set()
        await reviewing
        assert agent.notes.read("user") == right


@pytest.mark.parametrize("right", [MAX, ""], ids=["corrected", "forgotten"])
async def test_a_note_is_not_corrected_if_the_correction_cannot_be_stored(
    tmp_path: Path, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object) -> None:
        raise StoreFullError("the disk is full")

    async with open_seam(tmp_path, model(), None) as agent:
        agent.notes.add("user", REX)
        with monkeypatch.context() as full:
            full.setattr(agent.store, "write", refuse)
            with pytest.raises(StoreFullError):
                await correct(agent, right)
        assert agent.notes.entries("user") == [REX]


@pytest.mark.parametrize(
    "other", ["Has a dog called Max", "Has a friend called Rex", "The terrier Max, a dog, was once called Rex"]
)
async def test_a_review_notes_facts_that_no_correction_covers(tmp_path: Path, other: str) -> None:
    async with open_seam(tmp_path, model(other), None, Policy(review_every=1)) as agent:
        agent.notes.add("user", REX)
        await correct(agent, "Has a dog called Max, a terrier")
        await say(agent, "hello")
        await finish(agent)
        assert other in agent.notes.entries("user")


async def test_a_reviewer_sees_the_corrections(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), None, Policy(review_every=1)) as agent:
        agent.notes.add("user", REX)
        await correct(agent, MAX)
        await say(agent, "hello")
        await finish(agent)
        asked = next(r for r in requests(agent) if r.messages[0]["content"] == PROMPT)
        assert f"- wrong: {REX} | right: {MAX}" in str(asked.messages[1]["content"])


async def test_a_running_session_sees_a_correction_at_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), None) as agent:
        agent.notes.add("user", REX)
        await say(agent, "hello")
        await correct(agent, MAX)
        await say(agent, "What is my dog called?")
        await say(agent, "Really?")
        first, second, third = (str(request.messages[0]["content"]) for request in requests(agent))
        assert first.count("Rex") == 1
        assert f"- wrong: {REX} | right: {MAX}" in second
        assert second.count("Rex") == 1, "the note itself is the corrected one"
        assert third == second


async def test_a_running_session_sees_a_reverted_correction_at_once(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), None) as agent:
        agent.notes.add("user", REX)
        for right in (MAX, REX):
            await correct(agent, right)
            await say(agent, "hello")
        first, second = (str(request.messages[0]["content"]) for request in requests(agent))
        assert f"- wrong: {REX} | right: {MAX}" in first
        assert f"- wrong: {MAX} | right: {REX}" in second
        assert f"wrong: {REX}" not in second


async def test_a_corrected_fact_is_noted_again_only_if_the_person_repeats_it(tmp_path: Path) -> None:
    script = [
        calls("memory", action="add", target="user", content="The dog is Rex"),
        Reply("sorry"),
        calls("memory", action="replace", target="user", old_text="Max", content="The dog is Rex"),
        Reply("noted"),
    ]
    async with open_seam(tmp_path, script, None) as agent:
        agent.notes.add("user", REX)
        await correct(agent, MAX)
        await say(agent, "Tell me about my pets")
        assert agent.notes.entries("user") == [MAX]
        await say(agent, "I was wrong, the name is Rex after all")
        assert agent.notes.entries("user") == ["The dog is Rex"]
        assert await agent.store.read(lambda tx: corrections_of(tx, OWNER)) == []


async def test_corrected_facts_can_be_removed_from_any_note(tmp_path: Path) -> None:
    script = [calls("memory", action="remove", target="user", content=REX), Reply("gone")]
    async with open_seam(tmp_path, script, None) as agent:
        await agent.store.write(lambda tx: keep_correction(tx, OWNER, REX, MAX, now=1.0))
        agent.notes.add("user", REX)
        await say(agent, "Take that out")
        assert agent.notes.entries("user") == []


async def test_recalled_lines_with_a_corrected_fact_also_state_the_correction(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), Recorder()) as agent:
        now = agent.clock.now()
        await agent.store.write(lambda tx: keep_correction(tx, OWNER, "My dog is called Rex.", "It is Max.", now=now))
        await say(agent, "my dog is called Rex, is it not?")
        asked = str(requests(agent)[-1].messages[-1]["content"])
        recalled, _, said = asked.partition("</memory-context>")
        assert "recalled for my dog is called Rex, is it not? [corrected by the person" in recalled
        assert "It is Max." in recalled
        assert "corrected" not in said


RIGHT = "My dog is called Max."


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("My dog is called Rex.", RIGHT),
        ("my dog's name is Rex", RIGHT),
        ("I live in Oslo. My dog is called Rex.", f"I live in Oslo. {RIGHT}"),
        ("My dog is called Max.", RIGHT),
        (
            "My dog Rex is four.",
            "My dog Rex is four. [corrected by the person, 01 January 1970: My dog is called Max.]",
        ),
    ],
)
async def test_without_a_model_corrections_are_quoted_in_place_of_corrected_facts(
    tmp_path: Path, said: str, answer: str
) -> None:
    async with open_seam(tmp_path, model(), None) as agent:
        await say(agent, said)
        await agent.store.write(lambda tx: keep_correction(tx, OWNER, "My dog is called Rex.", RIGHT, now=1.0))
        found = await recollect(agent.store, agent.notes, Inquiry("What is my dog called?"))
        assert [line.text for line in found] == [answer]


def corrected(wrong: str, right: str) -> Corrections:
    return Corrections((Correction(1, 1.0, wrong, right),))


@pytest.mark.parametrize(
    ("wrong", "right", "line"),
    [
        ("My dog is called Rex.", RIGHT, "hermes: Rex is a good one, I will remember it."),
        ("My locker code is 8899.", "My locker code is 7788.", "hermes: 8899 is a good one."),
        ("I live in New York", "I live in Boston", "hermes: New York is loud."),
        ("I have a dog, Rex", "I have a dog", "hermes: Say hello to Rex."),
    ],
)
def test_a_line_with_the_replaced_name_or_number_states_the_correction(wrong: str, right: str, line: str) -> None:
    marked = corrected(wrong, right).marked(f"hermes: Good.\n{line}")
    assert marked == f"hermes: Good.\n{line} [corrected by the person, 01 January 1970, if it is about this: {right}]"


@pytest.mark.parametrize(
    ("wrong", "right", "line"),
    [
        ("My dog is called Rex.", RIGHT, "hermes: Max, not Rex, I see."),
        ("My dog is called Rex.", RIGHT, "hermes: A good one, I will remember it."),
        ("My dog is called Rex.", RIGHT, "T. rex is a dinosaur."),
        ("I like coffee", "I like tea", "The coffee machine is broken."),
        ("Coffee is my drink", "Tea is my drink", "Coffee grows in Kenya."),
        ("I live in New York", "I live in Boston", "New shoes were bought."),
        ("I have 12 cats", "I have 13 cats", "The train leaves at 12."),
        ("I moved in 2019", "I moved in 2020", "[2019-04-01, session 1] user: hello"),
    ],
)
def test_a_line_that_shares_only_a_common_word_is_unchanged(wrong: str, right: str, line: str) -> None:
    assert corrected(wrong, right).marked(line) == line


def test_a_correction_to_the_same_name_changes_nothing() -> None:
    rows = (Correction(2, 2.0, "My cat is Tom", "My cat is Rex"), Correction(1, 1.0, "My dog is Rex", "My dog is Max"))
    assert Corrections(rows).marked("My cat is Rex") == "My cat is Rex"


async def test_a_chain_of_corrections_leads_to_the_last(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), None) as agent:
        for number, (wrong, right) in enumerate([("dog Rex", "dog Max"), ("dog Max", "dog Bo"), ("cat A", "cat B")]):
            await agent.store.write(lambda tx, w=wrong, r=right, n=number: keep_correction(tx, OWNER, w, r, now=n))  # type: ignore[misc]
        kept = await agent.store.read(lambda tx: corrections_of(tx, OWNER))
        assert {(one.wrong, one.right) for one in kept} == {
            ("dog Rex", "dog Bo"),
            ("dog Max", "dog Bo"),
            ("cat A", "cat B"),
        }
        await agent.store.write(lambda tx: keep_correction(tx, OWNER, "dog Bo", "dog Rex", now=9))
        kept = await agent.store.read(lambda tx: corrections_of(tx, OWNER))
        assert ("dog Rex", "dog Rex") not in {(one.wrong, one.right) for one in kept}


async def test_a_fact_forgotten_after_its_correction_returns_in_neither_form(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model("The dog is Rex", "The dog is Max"), None, Policy(review_every=1)) as agent:
        agent.notes.add("user", REX)
        await correct(agent, MAX)
        await correct(agent, "")
        kept = await agent.store.read(lambda tx: corrections_of(tx, OWNER))
        assert {(one.wrong, one.right) for one in kept} == {("", "")}
        await say(agent, "My dog is called Rex, or Max.")
        await finish(agent)
        assert agent.notes.entries("user") == []


async def test_forgetting_by_words_finds_a_correction_that_waits_for_the_server(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), None) as agent:
        store, wording, name = agent.store, Wording(("rex",)), queue_name("honcho")
        told = {"kind": "correct", "text": MAX, "data": {"id": "c1", "old": REX}}
        await store.write(lambda tx: queue.enqueue(tx, name, "lane", "correct:1", told, now=1.0))
        await store.write(lambda tx: forget_kept(store, tx, wording, find_kept(store, tx, wording), now=2.0))
        assert "Rex" not in str(await store.read(lambda tx: find(tx, name, "correct:1")))


async def test_forgetting_by_words_takes_corrections_along_and_their_number_is_bounded(tmp_path: Path) -> None:
    async with open_seam(tmp_path, model(), None) as agent:
        store, wording = agent.store, Wording(("rex",))
        await store.write(lambda tx: keep_correction(tx, OWNER, REX, MAX, now=1.0))
        await store.write(lambda tx: keep_forgotten(tx, OWNER, "likes figs", fact_words, now=1.0))
        await store.write(lambda tx: forget_kept(store, tx, wording, find_kept(store, tx, wording), now=2.0))
        [left] = await store.read(lambda tx: corrections_of(tx, OWNER))
        assert left.right == ""
        for number in range(MAX_CORRECTIONS + 5):
            await store.write(lambda tx, n=number: keep_correction(tx, OWNER, f"w{n}", f"r{n}", now=3.0))  # type: ignore[misc]
        assert len(await store.read(lambda tx: corrections_of(tx, OWNER))) == MAX_CORRECTIONS
