"""A small model with facts in natural language: most of them are in the notes afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.slow.facts import noted, read_notes, tell_facts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.environ.get("HERMES_SLOW") != "1", reason="needs a model of 1.2 GB: `make slow` fetches it"),
]

MIN_FACTS = 6
"""Minimum of ten facts. A model of 1.5 billion parameters kept 7 when measured; 4 with a tool that refused its
calls."""


def test_most_of_ten_facts_told_in_short_sessions_are_noted(base_url: str, home: Path) -> None:
    tell_facts(home, base_url)
    assert len(noted(read_notes(home))) >= MIN_FACTS, read_notes(home)
