"""Late memory is reported where the reply would have used it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.offline_answers import NOT_READ
from hermes.memory.health import LATE_NOTICE
from tests.cli.chatting import chat, configure, environment, serving

pytestmark = pytest.mark.processes

COLD = """
from hermes.memory.provider import Address, Delivered, MemoryPlugin, MemorySession, Recalled


class Empty(MemorySession):
    async def recall(self, question):
        return Recalled(missed={"all": "it was not there in time"})


class Cold(MemoryPlugin):
    name = "cold"

    def is_available(self):
        return True

    def address(self, place):
        return Address(lane="all", data="all", wants=frozenset({"said"}), pace="turn")

    def open(self, conversation, address):
        return Empty()

    async def deliver(self, entries, until):
        return [Delivered()] * len(entries)


create_plugin = Cold
"""
"""A memory that accepts messages at once and recalls nothing in time."""
SAID = "My cat is called Miso.\nWhat is my cat called?\nAnd what is it called now?\n"


@pytest.fixture(autouse=True)
def cold(home: Path) -> None:
    configure(home, "memory:\n  provider: cold\n  deadline: 60\n  first_deadline: 60\n")
    folder = home / "plugins" / "cold"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(COLD)


@pytest.mark.contract("7.5")
def test_a_late_memory_is_said_once_and_not_before_it_was_told_anything(home: Path) -> None:
    with serving([], then={"echo": True}) as endpoint:
        env = environment(home, endpoint.base_url, HERMES_MEMORY_PROVIDER="")
        first = chat(env, "-q", "My cat is called Miso.")
        later = chat(env, said=SAID)
    assert LATE_NOTICE not in first.err
    assert later.err.count(LATE_NOTICE) == 1


@pytest.mark.contract("7.5")
def test_without_a_model_a_reply_from_memory_is_not_said_to_go_without_it(home: Path) -> None:
    done = chat(environment(home, HERMES_MEMORY_PROVIDER=""), said=f"{SAID}Where does Ben live?\n")
    assert "From memory: “My cat is called Miso.”" in done.out
    assert LATE_NOTICE not in done.err
    assert done.out.splitlines()[-1].endswith(NOT_READ)
