"""Recall from a real server: layers and their order, cadence, depth, deadlines and reach."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from hermes.fence import OVERHEAD_CHARS
from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.recall import CANCELLED
from hermes.honcho.recall_policy import COLD, WARM
from hermes.honcho.recall_reader import NOTICE
from hermes.honcho.recall_source import RecallSource
from hermes.honcho.wire import DeliveryTimeouts
from hermes.memory.active import Deadlines
from hermes.memory_server.engine.dialectic import HEAD, UNTOLD
from tests.honcho.between import Asked, Instead, like_a_model, until_it_is_so
from tests.honcho.recalling import ANN, BOT, HERE, PATIENT, SESSIONS, Recalling

FIGS = "I like figs and my cat is called Miso."


@pytest.mark.contract("7.1", "7.3")
async def test_the_first_turn_has_what_was_said_in_another_session(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, FIGS))
    async with recalling.host() as talk:
        assert "figs" in await talk.turn("What fruit do I like?")


@pytest.mark.contract("7.3")
async def test_layers_come_in_their_order_and_evidence_last(recalling: Recalling) -> None:
    recalling.configure(contextTokens=4000)
    session = SESSIONS[HERE.session_id]
    recalling.tell(session, *[(ANN, f"I own book number {number}.") for number in range(25)])
    recalling.tell(session, (BOT, "I keep my answers short."))
    recalling.conclude(BOT, ANN, "Ann collects old maps.")
    recalling.set_card(BOT, ["Name: Ann"], ANN)
    recalling.set_card(BOT, ["I am a librarian"])
    answers = like_a_model("She wants the atlas.")
    said = {"content": "I lent you an atlas.", "peer_id": BOT, "created_at": "2026-01-02T03:04:05Z", "id": "m"}
    found = {"search": [said], "query": []}
    recalling.between.rule = lambda asked: Instead(found[asked.what]) if asked.what in found else answers(asked)
    async with recalling.host() as talk:
        text = await talk.turn("Which books do I have?")
    places = [
        text.index(mark)
        for mark in (
            "## Key facts about ann\nName: Ann",
            "## Summary of what was said here so far",
            "## What is known about ann",
            "## What you know about yourself",
            "## Key facts about yourself\nI am a librarian",
            "## What matters now\nShe wants the atlas.",
            "## Said earlier\n2 January 2026:\n- bot: I lent you an atlas.",
        )
    ]
    assert places == sorted(places)


@pytest.mark.contract("7.4")
async def test_the_cold_question_is_asked_ahead_and_the_warm_one_once_something_is_known(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, FIGS))
    recalling.between.rule = like_a_model("an answer")
    async with recalling.host() as talk:
        await talk.turn("What fruit do I like?")
    cold, warm = recalling.between.bodies("chat")
    assert (cold["query"], cold["target"], cold["reasoning_level"]) == (COLD, ANN, "low")
    assert (warm["query"], warm["session_id"]) == (WARM, SESSIONS[HERE.session_id])


@pytest.mark.contract("7.4")
async def test_depth_asks_again_until_an_answer_is_strong(recalling: Recalling) -> None:
    recalling.configure(dialecticDepth=3, dialecticReasoningLevel="medium")
    recalling.between.rule = like_a_model("weak", "still weak", "final", "x " * 200)
    async with recalling.host() as talk:
        assert "## What matters now\nfinal" in await talk.turn("x" * 400)
    levels = [body["reasoning_level"] for body in recalling.between.bodies("chat")]
    assert levels == ["minimal", "medium", "low", "minimal"]  # the last was strong at once
    assert "still weak" in recalling.between.bodies("chat")[2]["query"]


async def test_a_long_question_is_thought_about_harder(recalling: Recalling) -> None:
    recalling.configure()
    recalling.between.rule = like_a_model("answer")
    async with recalling.host() as talk:
        for length in (10, 120, 400):
            await talk.turn("y" * length)
    assert [body["reasoning_level"] for body in recalling.between.bodies("chat")] == ["low", "low", "medium", "high"]


@pytest.mark.contract("7.3", "7.5", "7.9")
@pytest.mark.parametrize(
    ("settings", "contexts", "chats", "searches"),
    [
        ({}, 21, 21, 40),
        ({"contextCadence": 3}, 7, 21, 40),
        ({"dialecticCadence": 5}, 21, 5, 40),
        ({"contextCadence": 4, "dialecticCadence": 10}, 6, 3, 40),
        ({"injectionFrequency": "first-turn"}, 1, 1, 2),
        ({"recallMode": "tools"}, 0, 0, 0),
        ({"recallMode": "context"}, 21, 21, 40),
        ({"enabled": False}, 0, 0, 0),
    ],
)
async def test_requests_over_twenty_turns_follow_the_cadence_and_evidence_each_message(
    recalling: Recalling, settings: dict[str, object], contexts: int, chats: int, searches: int
) -> None:
    recalling.configure(**settings)
    recalling.between.rule = like_a_model("answer")
    async with recalling.host() as talk:
        recalled = [bool(await talk.turn(f"question {number}")) for number in range(20)]
    counted = tuple(map(recalling.between.count, ("context", "chat", "search")))
    assert counted == (contexts, chats, searches)
    injecting = 20 if contexts > 1 else contexts
    assert recalled == [True] * injecting + [False] * (20 - injecting)


@pytest.mark.contract("7.3", "7.5")
async def test_conversation_resumed_in_another_process_continues_its_turn_count(recalling: Recalling) -> None:
    recalling.configure(contextCadence=3, dialecticCadence=3)
    recalling.between.rule = like_a_model("answer")
    async with recalling.host() as talk:
        for number in range(4):
            await talk.turn(f"question {number}")
    before = recalling.between.count("context")
    async with recalling.host() as talk:
        for number in range(4, 6):
            await talk.turn(f"question {number}")
    assert recalling.between.count("context") == before + 1  # ahead of turn 5; the next is for turn 8


@pytest.mark.contract("7.5")
async def test_first_turn_alone_is_the_conversations_first_and_not_the_processs(recalling: Recalling) -> None:
    recalling.configure(injectionFrequency="first-turn")
    recalling.between.rule = like_a_model("answer")
    async with recalling.host() as talk:
        assert await talk.turn("question 1")
    before = len(recalling.between.asked)
    async with recalling.host() as talk:
        assert await talk.turn("question 2") == ""
    assert recalling.between.count("context") == 1
    assert len(recalling.between.asked) == before


@pytest.mark.contract("7.5")
async def test_trivial_input_asks_nothing_and_gets_nothing(recalling: Recalling) -> None:
    recalling.configure()
    recalling.between.rule = like_a_model("answer")
    async with recalling.host() as talk:
        await talk.turn("What do I like?")
        before = len(recalling.between.asked)
        assert await talk.turn("ok") == ""
        assert await talk.turn("/compress") == ""
    assert len(recalling.between.asked) == before


@pytest.mark.contract("7.3")
@pytest.mark.parametrize("tokens", [1, 20, 50, 300])
async def test_the_budget_holds_whatever_the_server_has(recalling: Recalling, tokens: int) -> None:
    recalling.configure(contextTokens=tokens)
    recalling.tell("elsewhere", *[(ANN, f"I own book number {number}, which is red.") for number in range(60)])
    recalling.between.rule = like_a_model("word " * 500)
    async with recalling.host() as talk:
        text = await talk.turn("Which books do I own?")
    assert len(text) <= max(0, tokens * 4 - OVERHEAD_CHARS)
    assert bool(text) is (tokens > 20)


@pytest.mark.contract("7.5")
async def test_what_misses_the_deadline_is_used_in_the_next_turn_and_makes_no_other_wait(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, FIGS))
    answers = like_a_model("a slow answer")
    slow = Instead({"content": "a slow answer"}, hang=True)
    recalling.between.rule = lambda asked: slow if asked.what == "chat" else answers(asked)
    base = Counter({"context": 1, "representation": 2, "card": 1})
    async with recalling.host() as talk:
        memory = await talk.memory()
        await memory.tools(memory.begin())
        await asyncio.to_thread(
            until_it_is_so, lambda: base <= Counter(asked.what for asked in list(recalling.between.answered))
        )
        talk.provider.deadlines = replace(PATIENT, first_turn=3.0)
        said = await talk.say("What fruit do I like?")
        first = await memory.recall([said], memory.begin())
        assert "figs" in first.text
        assert "a slow answer" not in first.text
        assert first.missed == "dialectic: it was not there in time"
        async with asyncio.timeout(10):  # nobody waits for it again: the deadline is 20 s
            again = await memory.recall([await talk.say("And my cat?")], memory.begin())
        assert again.missed == first.missed
        recalling.between.go_on.set()
        await memory.settle()
        second = await memory.recall([await talk.say("And my cat?")], memory.begin())
        assert "a slow answer" in second.text
        assert second.missed is None


async def test_a_failure_of_what_is_no_longer_asked_does_not_stand(recalling: Recalling) -> None:
    recalling.configure()
    recalling.between.rule = lambda _: Instead(cut_off=True)
    async with recalling.host() as talk:
        memory = await talk.memory()
        said = await talk.say("What fruit do I like?")
        await memory.recall([said], memory.begin())
        recalling.between.rule = like_a_model("a fig")  # it is back before it is asked again, and has a model
        memory.after_turn([said])
        await memory.settle()
        assert memory.state == "ok"


@pytest.mark.contract("7.9")
async def test_evidence_of_our_own_server_is_one_request_with_the_message(recalling: Recalling) -> None:
    assert HEAD.startswith(NOTICE)
    assert UNTOLD.startswith(NOTICE)
    recalling.configure(dialecticDepth=3)
    recalling.tell("elsewhere", (ANN, FIGS), (ANN, "The printer in the hall is broken again."))
    async with recalling.host() as talk:
        text = await talk.turn("What is my cat called?")
    [asked] = recalling.between.bodies("evidence")
    assert (asked["query"], asked["heard_by"]) == ("What is my cat called?", ANN)
    assert {"observer_id": ANN, "observed_id": ANN} in asked["views"], "what she said to another agent counts too"
    assert [recalling.between.count(other) for other in ("chat", "search", "query")] == [0, 0, 0]
    assert text.count("Miso") == 1
    assert NOTICE not in text


@pytest.mark.contract("7.9")
async def test_evidence_serves_one_turn(recalling: Recalling) -> None:
    recalling.configure(dialecticCadence=2, contextTokens=100)
    recalling.tell("elsewhere", (ANN, FIGS))
    nothing = {"context": {"id": "s", "messages": []}, "representation": {"representation": ""}}
    recalling.between.rule = lambda asked: Instead(nothing[asked.what]) if asked.what in nothing else None
    async with recalling.host() as talk:
        assert "## Said earlier" in await talk.turn("What is my cat called?")
        assert "## Said earlier" not in await talk.turn("How is the weather?")


@pytest.mark.contract("7.6")
async def test_the_mode_says_whether_there_are_tools_and_a_header(recalling: Recalling) -> None:
    for mode, has_tools in (("hybrid", True), ("context", False), ("tools", True)):
        recalling.configure(recallMode=mode)
        async with recalling.host() as talk:
            memory = await talk.memory()
            until = memory.begin()
            names = [spec.name for spec in await memory.tools(until)]
            block = await memory.prompt_block(until)
        assert (len(names) == 5) is has_tools
        assert block is not None
        assert ("honcho_search" in block) is has_tools


async def test_asking_makes_nothing_on_the_server(recalling: Recalling) -> None:
    recalling.configure()
    async with recalling.host() as talk:
        assert await talk.turn("What do I like?") == ""
    with recalling.at_server() as http:
        assert http.post("/sessions/list").json()["total"] == 0


@pytest.mark.contract("7.5", "7.9")
async def test_after_late_evidence_each_turn_has_its_own_again(recalling: Recalling) -> None:
    recalling.configure()
    recalling.tell("elsewhere", (ANN, FIGS), (ANN, "My bike is called Rocinante."))
    nothing = Instead({"summary": None, "views": []})
    is_slow = True

    def rule(asked: Asked) -> Instead | None:
        if asked.what == "evidence" and is_slow:
            return Instead({"messages": [], "conclusions": [{"id": "c", "content": "late"}]}, hang=True)
        return nothing if asked.what == "context" else None

    recalling.between.rule = rule
    async with recalling.host(Deadlines(first_turn=2.0, turn=20.0)) as talk:
        memory = await talk.memory()
        said = await talk.say("What is my cat called?")
        first = await memory.recall([said], memory.begin())
        assert first.missed == "evidence: it was not there in time"
        is_slow = False
        recalling.between.go_on.set()
        memory.after_turn([said])
        await memory.settle()
        for question, name in (("What is my bike called?", "Rocinante"), ("What is my cat called?", "Miso")):
            found = await memory.recall([await talk.say(question)], memory.begin())
            assert name in found.text.rpartition("## Said earlier")[2]
            assert "late" not in found.text
            assert found.missed is None


@pytest.mark.contract("7.8")
async def test_a_layer_with_a_defect_or_stopped_half_way_is_named_as_missed(
    recalling: Recalling, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("summary")

    recalling.configure()
    answers = like_a_model("never")
    hang = Instead({"content": "never"}, hang=True)
    recalling.between.rule = lambda asked: hang if asked.what == "chat" else answers(asked)
    monkeypatch.setattr(RecallSource, "base", broken)
    async with recalling.host(Deadlines(first_turn=2.0, turn=20.0, prepare=2.0)) as talk:
        memory = await talk.memory()
        await memory.recall([await talk.say("What fruit do I like?")], memory.begin())
        await memory.settle()  # preparing has come to its end, and was stopped
        found = await memory.recall([await talk.say("And my cat?")], memory.begin())
    assert found.missed is not None
    assert "base: KeyError: 'summary'" in found.missed
    assert f"dialectic: {CANCELLED}" in found.missed


@pytest.mark.contract("7.5")
async def test_an_answer_may_take_longer_than_a_request_does_as_nobody_waits_for_it(
    recalling: Recalling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HonchoPlugin, "timeouts", DeliveryTimeouts(request=5.0))
    recalling.configure()
    answers = like_a_model("a slow answer")
    slow = Instead({"content": "a slow answer"}, hang=True)
    recalling.between.rule = lambda asked: slow if asked.what == "chat" else answers(asked)
    async with recalling.host(Deadlines(first_turn=2.0, turn=20.0, prepare=60.0)) as talk:
        memory = await talk.memory()
        first = await memory.recall([await talk.say("What fruit do I like?")], memory.begin())
        await asyncio.sleep(5.5)  # longer than any other request may take
        recalling.between.go_on.set()
        await memory.settle()
        second = await memory.recall([await talk.say("And my cat?")], memory.begin())
    assert first.missed is not None
    assert second.missed is None
    assert "a slow answer" in second.text
