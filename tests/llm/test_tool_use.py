"""The self-test of tools: its requests, its verdicts, and where they are saved."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from hermes.agent.tools import MAX_VERDICTS, ToolVerdicts
from hermes.clock import SystemClock
from hermes.llm.events import ModelFailed, Reply
from hermes.llm.tool_use import PHONE_NUMBER, ToolAbility, ToolSwitch, ToolVerdict, run_self_test
from tests.llm.scripted import ScriptedAnswer, ScriptedModel
from tests.llm.tool_test_replies import INVENTS, LOOKS_UP, SENDS

HERE = "http://127.0.0.1:1/v1"
pytestmark = pytest.mark.contract("7.11")


DOWN = ModelFailed("server", "it is down", retryable=False)


class Named:
    """An endpoint with one model."""

    answering = "scripted"

    async def list(self) -> object:
        return ()


def ability(folder: Path, switch: ToolSwitch = "auto") -> ToolAbility:
    return ToolAbility(HERE, lambda _: switch, ToolVerdicts(folder / "model-tools.json"), SystemClock())


def test_a_model_that_looks_up_and_uses_what_it_found_passes() -> None:
    model = ScriptedModel([LOOKS_UP, SENDS])
    verdict = asyncio.run(run_self_test(model, lambda: 7.0))
    assert verdict == ToolVerdict(True, 7.0)
    assert len(model.requests) == 2
    assert PHONE_NUMBER in str(model.requests[1].messages)
    assert PHONE_NUMBER not in str(model.requests[0].messages)


@pytest.mark.parametrize(
    "script",
    [
        [INVENTS],
        [LOOKS_UP, Reply(f"Her number is {PHONE_NUMBER}.")],
        [Reply('<tool_call>{"name": "find_contact", "arguments": {"name": "Ada"}}</tool_call>')],
        [LOOKS_UP] * 9,
        [ModelFailed("bad_request", "this model does not support tools", retryable=False)],
    ],
    ids=["invents", "forgets the second call", "writes text", "goes round", "is refused by the endpoint"],
)
def test_a_model_that_does_not_fails_and_it_is_said_why(script: Sequence[ScriptedAnswer]) -> None:
    verdict = asyncio.run(run_self_test(ScriptedModel(script), lambda: 7.0))
    assert verdict is not None
    assert not verdict.can_use
    assert verdict.why


def test_a_failing_endpoint_is_no_verdict_and_is_asked_again(tmp_path: Path) -> None:
    model = ScriptedModel([DOWN, LOOKS_UP, SENDS])

    async def turns() -> list[bool]:
        tools = ability(tmp_path)
        found = []
        for _ in range(2):
            tools.begin(model, Named())
            found.append(await tools.settled(model, Named()))
        return found

    assert asyncio.run(turns()) == [False, True]
    assert ability(tmp_path).is_offered("scripted") is True


def test_a_verdict_is_remembered_and_said_once(tmp_path: Path) -> None:
    async def turn(model: ScriptedModel) -> tuple[bool, list[str], int]:
        tools = ability(tmp_path)
        tools.begin(model, Named())
        return await tools.settled(model, Named()), tools.take_notices(), len(model.requests)

    may, notices, asked = asyncio.run(turn(ScriptedModel([INVENTS])))
    assert (may, asked) == (False, 1)
    assert "scripted is offered no tools: it invented" in notices[0]
    assert asyncio.run(turn(ScriptedModel([LOOKS_UP, SENDS]))) == (False, [], 0)


def test_a_turn_does_not_wait_for_a_second_test_that_still_runs(tmp_path: Path) -> None:
    async def silent() -> bool:
        waits = asyncio.Event()
        model = ScriptedModel([[waits, DOWN]])
        tools = ability(tmp_path)
        tools.begin(model, Named())
        tools._wait_until["scripted"] = 0.0
        return await tools.settled(model, Named())

    assert asyncio.run(silent()) is False


@pytest.mark.parametrize(("switch", "offered"), [("on", True), ("off", False)])
def test_the_setting_goes_before_any_test(tmp_path: Path, switch: ToolSwitch, offered: bool) -> None:
    async def turn() -> tuple[bool, int]:
        model = ScriptedModel([INVENTS])
        tools = ability(tmp_path, switch)
        tools.begin(model, Named())
        return await tools.settled(model, Named()), len(model.requests)

    assert asyncio.run(turn()) == (offered, 0)


def test_the_verdict_file_is_bounded_and_a_broken_one_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "model-tools.json"
    path.write_text("{ not json")
    kept = ToolVerdicts(path)
    assert kept.get(HERE, "m0") is None
    for number in range(MAX_VERDICTS + 5):
        kept.put(HERE, f"m{number}", ToolVerdict(True, float(number)))
    assert kept.get(HERE, "m0") is None
    assert kept.get(HERE, f"m{MAX_VERDICTS + 4}") is not None
    assert kept.last(HERE) == f"m{MAX_VERDICTS + 4}"
    assert len([number for number in range(MAX_VERDICTS + 5) if kept.get(HERE, f"m{number}")]) == MAX_VERDICTS


def test_a_verdict_that_cannot_be_saved_counts_for_this_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = ToolVerdicts(tmp_path / "file" / "model-tools.json")
    kept.put(HERE, "m", ToolVerdict(False, 1.0, "why"))
    assert kept.get(HERE, "m") == ToolVerdict(False, 1.0, "why")
