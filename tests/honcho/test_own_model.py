"""The dialectic on our own server with a model: its questions, passes and levels, and a model that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.honcho import recall_reader
from hermes.honcho.recall_policy import AUDIT, COLD, RECONCILE, WARM
from hermes.types import OWN_MARK
from tests.honcho.between import Between
from tests.honcho.configuring import Machine
from tests.honcho.recalling import ANN, BOT, PATIENT, SESSIONS, Recalling
from tests.llm.beside import beside
from tests.llm.loopback import Answer, LoopbackServer, says
from tests.memory_server.modelling import write_model
from tests.memory_server.serving import Served, inside, start, stop
from tests.memory_server.talking import settle

pytestmark = [pytest.mark.processes, pytest.mark.contract("7.4")]
HOURS = replace(PATIENT, first_turn=7200, turn=7200)
"""A deadline of which even a part would be too long to wait for."""
WEAK = "Ann likes figs [1]."
STRONG = "Ann likes figs, and she has said so [1]. " * 9


@pytest.fixture(scope="module")
def served(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(tmp_path_factory.mktemp("own"))
    yield served
    assert "Traceback" not in stop(served)


@pytest.fixture
def recalling(machine: Machine, served: Served, workspace: str) -> Iterator[Recalling]:
    """A home whose memory is on a server of our kind, with a message of the owner."""
    with inside(served, workspace) as http:
        said = {"content": "I like figs.", "peer_id": ANN, "metadata": {OWN_MARK: True}}
        peers = {ANN: {}, BOT: {"observe_others": True}}
        http.post("/sessions", json={"id": SESSIONS["s1"], "peers": peers}).raise_for_status()
        http.post(f"/sessions/{SESSIONS['s1']}/messages", json={"messages": [said]}).raise_for_status()
        settle(http)
    with Between(served.url) as between:
        yield Recalling(machine, served, between, workspace)
    write_model(served.folder, source="off")


def asked(model: LoopbackServer) -> list[str]:
    """Return the question in each request to the model."""
    return [str(one.body["messages"][1]["content"]).partition("Question: ")[2] for one in model.requests]


def levels(recalling: Recalling) -> list[str]:
    return [body["reasoning_level"] for body in recalling.between.bodies("chat")]


@pytest.mark.parametrize(
    ("settings", "answer", "passes", "wanted"),
    [
        ({}, WEAK, [COLD], ["low"]),
        ({"dialecticDepth": 2}, WEAK, [COLD, AUDIT], ["minimal", "low"]),
        ({"dialecticDepth": 3}, WEAK, [COLD, AUDIT, RECONCILE], ["minimal", "low", "low"]),
        ({"dialecticDepth": 3}, STRONG, [COLD], ["minimal"]),
        ({"dialecticDepth": 2, "dialecticDepthLevels": ["high", "max"]}, WEAK, [COLD, AUDIT], ["high", "max"]),
        ({"dialecticReasoningLevel": "medium"}, WEAK, [COLD], ["medium"]),
    ],
)
async def test_passes_and_levels_are_those_of_any_honcho(
    recalling: Recalling, settings: dict[str, Any], answer: str, passes: Sequence[str], wanted: Sequence[str]
) -> None:
    recalling.configure(**settings)
    with beside(LoopbackServer(then=says(answer))) as model:
        write_model(recalling.server.folder, url=model.base_url)
        async with recalling.host() as talk:
            memory = await talk.memory()
            await memory.prompt_block(memory.begin())
            await memory.settle()
            text = (await memory.recall([await talk.say("Hello, what do you know?")], memory.begin())).text
    assert [question.split("\n")[0] for question in asked(model)] == [one.split("\n")[0] for one in passes]
    assert levels(recalling) == list(wanted)
    assert "What matters now" in text
    assert "Ann likes figs" in text


async def test_a_warm_question_is_asked_in_the_session_and_length_raises_its_level(recalling: Recalling) -> None:
    recalling.configure()
    with beside(LoopbackServer(then=says(WEAK))) as model:
        write_model(recalling.server.folder, url=model.base_url)
        async with recalling.host() as talk:
            await talk.turn("Which fruit do I like?")
            await talk.turn("And now for a long one: " + "which of all the fruit that there is " * 5)
        assert asked(model)[0] == COLD
        assert WARM in asked(model)
        assert recalling.between.bodies("chat")[-1]["session_id"] == SESSIONS["s1"]
        assert levels(recalling)[-1] == "medium"


async def test_reasoning_tool_gives_the_models_answer(recalling: Recalling) -> None:
    recalling.configure(recallMode="tools")
    with beside(LoopbackServer(then=says(WEAK))) as model:
        write_model(recalling.server.folder, url=model.base_url)
        async with recalling.host() as talk:
            assert await talk.use("honcho_reasoning", query="What fruit?", level="max") == "Ann likes figs."
        assert asked(model) == ["What fruit?"]
        assert levels(recalling) == ["max"]


@pytest.mark.contract("7.5")
async def test_a_turn_does_not_wait_for_a_model_that_hangs(recalling: Recalling) -> None:
    recalling.configure()
    go_on = threading.Event()
    with beside(LoopbackServer(then=Answer(chunks=[go_on]))) as model:
        write_model(recalling.server.folder, url=model.base_url)
        async with asyncio.timeout(60), recalling.host(HOURS) as talk:
            memory = await talk.memory()
            recalled = await memory.recall([await talk.say("What fruit do I like?")], memory.begin())
            assert "I like figs." in recalled.text
            assert "evidence" not in (recalled.missed or "")
        go_on.set()


async def test_a_running_chat_notices_that_a_model_came_and_went(
    recalling: Recalling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_reader, "HEALTH_SECONDS", 0.0)
    recalling.configure()
    write_model(recalling.server.folder, source="off")
    async with recalling.host() as talk:
        assert "What matters now" not in await talk.turn("Which fruit do I like?")
        with beside(LoopbackServer(then=says(WEAK))) as model:
            write_model(recalling.server.folder, url=model.base_url)
            for number in range(3):
                text = await talk.turn(f"Which fruit do I like, number {number}?")
        assert "What matters now" in text
        write_model(recalling.server.folder, source="off")
        before = len(recalling.between.bodies("chat"))
        await talk.turn("Which fruit do I like now?")
        assert len(recalling.between.bodies("chat")) == before
