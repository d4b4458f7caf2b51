"""`hermes memory forget` in a home of its own: what it says is what happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.chatting import chat, environment
from tests.conftest import Ran

Hermes = Callable[..., Ran]


@pytest.mark.contract("7.12")
@pytest.mark.processes
def test_what_was_said_right_after_an_empty_incognito_range_is_forgotten_too(home: Path, hermes: Hermes) -> None:
    env = environment(home)
    chat(env, said="Hello there.\n/memory off\n/memory on\nMy cat is called Miso.\n")
    assert "Miso" in chat(env, "-q", "What is my cat called?").out
    assert hermes("memory", "forget", "Miso", "--yes").code == 0
    assert "Miso" not in chat(env, "-q", "What is my cat called?").out
