"""Facts that changed, as a person sees them: both versions with their times, the reason, and undoing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chatting import chat
from tests.honcho.configuring import Machine
from tests.honcho.fresh import fresh_home

pytestmark = pytest.mark.contract("9.5")


@pytest.fixture
def folder(processes: None, machine: Machine, tmp_path: Path) -> Path:
    """A home's folder; the user's folder is another one."""
    return tmp_path


def test_memory_shows_both_sides_says_why_and_undoes(folder: Path) -> None:
    with fresh_home(folder) as fresh:
        fresh.chat("-q", "I live in Lisbon.")
        fresh.deliver()
        fresh.chat("-q", "I moved to Porto last week.")
        fresh.deliver()
        typed = (
            "/memory search Lisbon\n/memory why 1\n/memory search Porto\n/memory why 1\n/memory undo 1\n/memory why 1\n"
        )
        listed = fresh.hermes("memory", "list", "Lisbon").out
        fresh.chat("-q", "What do you know of Lisbon?")
        explained = fresh.hermes("memory", "explain").out
        shown = chat(fresh.env, said=typed)
        told = shown.out + shown.err
    for ended in (told, listed):
        assert "no longer so since " in ended, "the older one says until when it held"
    assert "I live in Lisbon. (no longer so since " in explained
    assert "since then: I moved to Porto last week." in told
    assert "before, this held: I live in Lisbon." in told
    assert "Undone. Both hold: I moved to Porto last week." in told
    assert "before, this held: I live in Lisbon. (undone)" in told
