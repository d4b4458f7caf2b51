"""A small real model with Honcho as its memory: it uses Monday's facts on Tuesday, in another place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.honcho.tool_choice import WANTED, count_right
from tests.honcho.tuesday import known_on_tuesday

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.environ.get("HERMES_SLOW") != "1", reason="needs a model of 1.2 GB: `make slow` fetches it"),
]


def test_facts_told_on_monday_are_used_on_tuesday_on_another_platform(base_url: str, tmp_path: Path) -> None:
    with_memory = known_on_tuesday(tmp_path / "with", base_url, "honcho")
    without = known_on_tuesday(tmp_path / "without", base_url, "none")
    assert len(with_memory) >= len(without) + 4, (with_memory, without)


def test_most_tools_are_picked_right(base_url: str) -> None:
    right, picks = count_right(base_url)
    assert right >= len(WANTED) // 2, picks
