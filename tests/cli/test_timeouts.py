"""Slow work shows a message, counts the seconds and names the way out."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.chatting import configure, environment, serving
from tests.cli.screen import CTRL_C, CTRL_D, ENTER, Chat, Screen, stored

pytestmark = pytest.mark.processes

SLOW = """
import asyncio

from hermes.memory.provider import Address, Delivered, MemoryPlugin, MemorySession, Recalled


class Blank(MemorySession):
    async def recall(self, question):
        return Recalled(())


class Slow(MemoryPlugin):
    name = "slow"

    def is_available(self):
        return True

    def address(self, place):
        return Address(lane="all", data="all", wants=frozenset({"said"}))

    def open(self, conversation, address):
        return Blank()

    async def deliver(self, entries, until):
        while not (self.host.home / "at last").exists():
            await asyncio.sleep(0.1)
        return [Delivered()] * len(entries)


create_plugin = Slow
"""
"""A memory that accepts messages only once a file exists."""
PATIENT = """
import sys
from hermes.__main__ import main
from hermes.cli.conversation import TerminalConversation

TerminalConversation.end.__defaults__ = (600.0,)
sys.exit(main())
"""
"""Runs `hermes` with a closing time limit of ten minutes."""


def counts(screen: Screen, row: str) -> bool:
    """Return True if a row with any number of seconds is visible; a slow machine may skip some."""
    return re.search(re.escape(row).replace(r"\{\}", r"[1-9]\d*"), "\n".join(screen.rows)) is not None


@pytest.mark.contract("10.6")
def test_a_wait_for_the_model_names_it_and_the_way_out(chat: Chat) -> None:
    with chat({"says": {"text": "late", "delay": 60}}) as screen:
        screen.wait_for_prompt().type("go" + ENTER)
        screen.wait(lambda screen: counts(screen, "loop-1 … {} s, Ctrl-C stops it")).type(CTRL_C)
        screen.wait_for("(stopped)")


@pytest.mark.contract("10.6")
def test_a_terminal_that_cannot_redraw_is_told_once_that_it_takes_a_while(chat: Chat) -> None:
    with chat({"says": {"text": "late", "delay": 60}}, env={"TERM": "dumb"}) as screen:
        screen.wait_for("›").type("go\n")
        screen.wait(lambda screen: counts(screen, "(loop-1 … {} s, Ctrl-C stops it)"))
        screen.process.send_signal(signal.SIGINT)
        screen.wait_for("(stopped)")
    assert b"\x1b" not in screen.raw


@pytest.mark.contract("10.52")
def test_ctrl_c_where_the_prompt_cannot_be_changed_names_what_was_typed_ahead(chat: Chat, home: Path) -> None:
    with chat({"says": {"text": "late", "delay": 60}}, env={"TERM": "dumb"}) as screen:
        screen.wait_for("›").type("go\n")
        screen.wait_for("Ctrl-C stops it").type("later\n\n")  # an empty line is answered at once
        screen.wait(lambda screen: "\n".join(screen.rows).count("›") == 2).process.send_signal(signal.SIGINT)
        screen.wait_for("(not sent: later)").wait_for("(stopped)").type("now\n")
        screen.wait(lambda _: "now" in [content for _, content in stored(home)])
    assert "later" not in [content for _, content in stored(home)]


@pytest.mark.contract("10.6")
def test_one_ctrl_c_does_not_leave_a_terminal_that_cannot_redraw(chat: Chat, home: Path) -> None:
    with chat(env={"TERM": "dumb"}) as screen:
        screen.wait_for("›").process.send_signal(signal.SIGINT)
        screen.wait_for_rows("(Ctrl-C again to leave)", "›").type("hello\n")
        screen.wait(lambda _: len(stored(home)) == 2).wait(lambda screen: screen.prompt == "›")
        screen.process.send_signal(signal.SIGINT)
        screen.wait(lambda screen: "\n".join(screen.rows).count("again to leave") == 2)
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 0


@pytest.mark.contract("10.6")
def test_who_does_not_wait_for_memory_at_the_end_leaves_at_once(home: Path) -> None:
    folder = home / "plugins" / "slow"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(SLOW, encoding="utf-8")
    configure(home, "memory:\n  provider: slow\n")
    with (
        serving([], then={"echo": True}) as endpoint,
        Screen(
            "chat",
            env=environment(home, endpoint.base_url, HERMES_MEMORY_PROVIDER=""),
            program=(sys.executable, "-c", PATIENT),
        ) as screen,
    ):
        screen.wait_for_prompt().type("hello" + ENTER)
        screen.wait(lambda _: len(stored(home)) == 2).wait_for_rows("hello", "", "›").type(CTRL_D)
        telling = "Saving to memory; Ctrl-C leaves that to a background process … {} s"
        screen.wait(lambda screen: counts(screen, telling))
        screen.process.send_signal(signal.SIGINT)
        screen.wait_for("resumes it.")
        assert screen.ended() == 0
    (home / "at last").touch()
