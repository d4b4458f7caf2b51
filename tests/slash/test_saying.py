"""A command may answer with something to say: a turn like any other follows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hermes.cli.commands import Answered, run_command
from hermes.llm.events import Completed, Reply
from hermes.llm.model import ModelRequest
from hermes.slash.context import CommandContext, Say, Surface
from hermes.slash.table import OFFERED, Command
from tests.gateway.core import message, running_core
from tests.gateway.processes import rows
from tests.llm.scripted import ScriptedAnswer
from tests.slash.surfaces import at_terminal, in_chat


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command `/aloud TEXT` on every surface that says its text in capitals. The list counts its runs."""
    heard: list[str] = []

    async def aloud(_here: CommandContext, text: str) -> Say:
        heard.append(text)
        return Say(text.upper())

    surfaces: tuple[Surface, ...] = ("terminal", "chat")
    for surface in surfaces:
        monkeypatch.setitem(OFFERED[surface], "aloud", Command("aloud", "TEXT", "Say it in capitals.", aloud))
    return heard


async def test_a_terminal_is_given_what_the_command_says(tmp_path: Path, runs: list[str]) -> None:
    async with at_terminal(tmp_path) as conversation:
        assert await run_command(conversation, "/aloud hello", asyncio.Event()) == Answered("", say=Say("HELLO"))
    assert runs == ["hello"]


async def test_a_chat_gets_a_reply_to_what_the_command_says(tmp_path: Path, runs: list[str]) -> None:
    assert await in_chat(tmp_path, "/aloud hello", "and you?") == ["echo: HELLO", "echo: and you?"]
    said = [("user", "HELLO"), ("assistant", "echo: HELLO"), ("user", "and you?"), ("assistant", "echo: and you?")]
    assert rows(tmp_path, "SELECT role, content FROM messages ORDER BY id") == said
    assert runs == ["hello"]


async def test_a_command_that_said_something_before_a_crash_is_answered_and_not_run_again(
    tmp_path: Path, runs: list[str]
) -> None:
    def hang(_: ModelRequest) -> ScriptedAnswer:
        asked.set()
        return [asyncio.Event(), Completed(Reply(""))]

    asked = asyncio.Event()
    async with running_core(tmp_path, hang, gateway__drain=0.1) as core:
        await core.platform.deliver(message("/aloud hello"))
        await asked.wait()
    async with running_core(tmp_path) as core:
        await core.platform.until(lambda: core.platform.texts("7") == ["echo: HELLO"])
    assert rows(tmp_path, "SELECT content FROM messages WHERE role = 'user'") == [("HELLO",)]
    assert runs == ["hello"]
