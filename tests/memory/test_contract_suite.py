"""The contract suite: good providers pass, each kind of bad one is caught; the page about providers is true."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes.memory.contract import check_provider
from hermes.memory.provider import MemoryProvider, NullProvider
from hermes.memory.registry import find_provider
from hermes.types import Json, ToolSpec
from tests.memory.page import PAGE, example, install
from tests.memory.providers import CONTEXT, Recorder


async def test_no_provider_and_a_recording_one_hold_the_contract(tmp_path: Path) -> None:
    assert await check_provider(NullProvider, replace(CONTEXT, home=tmp_path)) == []

    class Careful(Recorder):
        async def handle_tool_call(self, name: str, arguments: Mapping[str, Json]) -> str:
            if name != "lookup":
                raise KeyError(name)
            return await super().handle_tool_call(name, arguments)

    assert await check_provider(Careful, replace(CONTEXT, home=tmp_path)) == []


@pytest.mark.contract("4.1")
async def test_the_example_of_the_page_holds_the_contract(tmp_path: Path) -> None:
    install(tmp_path)
    make = find_provider("diary", tmp_path / "plugins")
    assert await check_provider(make, replace(CONTEXT, home=tmp_path)) == []
    assert len(example().splitlines()) < 45


class Bad(NullProvider):
    name = "bad"


class Blocking(Bad):
    async def prefetch(self, query: str) -> str:
        return 3  # type: ignore[return-value]


class Plain(Bad):
    def sync_turn(self, turn: object) -> None:  # type: ignore[override]
        pass


class Wordy(Bad):
    async def on_turn_start(self, session_id: str, text: str, more: str) -> None:  # type: ignore[override]
        pass


class Fragile(Bad):
    async def sync_turn(self, turn: Any) -> None:
        assert turn.reply is not None


class Moody(Bad):
    count = 0

    async def system_prompt_block(self) -> str:
        Moody.count += 1
        return str(Moody.count)


class Toolish(Bad):
    async def tool_schemas(self) -> Sequence[ToolSpec]:
        return [ToolSpec("a b", "", {})]


class Agreeable(Bad):
    async def handle_tool_call(self, name: str, arguments: Mapping[str, Json]) -> str:
        return "sure"


class Deep(Bad):
    def cache_busting_signature(self) -> dict[str, Json] | None:
        return {"bad.key": {"nested": 1}}


class Foreign(Bad):
    def cache_busting_signature(self) -> dict[str, Json] | None:
        return {"other.key": 1}


class Speechless(Bad):
    async def status(self) -> Mapping[str, Json]:
        return {"at": object()}


class Pathless(Bad):
    def backup_paths(self) -> Sequence[Path]:
        return ["diary.txt"]  # type: ignore[list-item]


class Once(Bad):
    started = False

    async def initialize(self, context: object) -> None:
        assert not Once.started, "only one session at a time, ever"
        Once.started = True


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Blocking, "prefetch returned int"),
        (Plain, "sync_turn is not `async def`"),
        (Wordy, "on_turn_start needs more arguments than the host gives"),
        (Fragile, "sync_turn failed: AssertionError"),
        (Moody, "system_prompt_block changes within a session"),
        (Toolish, "tool_schemas returned a tool whose name"),
        (Agreeable, "handle_tool_call answers for a tool that it does not have"),
        (Deep, "cache_busting_signature should return"),
        (Foreign, "cache_busting_signature should return"),
        (Speechless, "status should return"),
        (Pathless, "backup_paths should return"),
        (Once, "initialize failed: AssertionError: only one session"),
    ],
)
async def test_each_kind_of_bad_provider_is_caught(tmp_path: Path, make: type[Bad], said: str) -> None:
    found = await check_provider(make, replace(CONTEXT, home=tmp_path))
    assert any(line.startswith(said) for line in found), found


@pytest.mark.contract("4.1")
def test_the_page_names_every_hook_and_no_other() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    hooks = [name for name in vars(MemoryProvider) if not name.startswith("_")]
    assert sorted(named) == sorted([*hooks, "name"])


@pytest.mark.contract("4.1")
def test_every_hook_but_the_first_few_has_a_default() -> None:
    assert MemoryProvider.__abstractmethods__ == {"is_available", "initialize"}
