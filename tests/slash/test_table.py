"""Every surface offers and answers the commands of one table."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import get_args

import pytest

from hermes.cli.commands import NO_CLIPBOARD, Answered, AtTerminal, run_command
from hermes.errors import UsageError
from hermes.slash.acts import BEGINS, NO_TOOL_CALLED, NOT_COMPRESSED, NOT_RUNNING
from hermes.slash.context import Surface
from hermes.slash.models import OWNERS
from hermes.slash.table import OFFERED, TABLE, Command, complete, find_command
from tests.gateway.processes import rows
from tests.llm.loopback import LoopbackServer, says
from tests.slash.surfaces import ask, at_terminal, in_chat, say

SURFACES: tuple[Surface, ...] = get_args(Surface)
BEGINNINGS = {
    "new": "A new session begins",
    "title": "(no title)",
    "sessions": "2",
    "resume": "Resuming",
    "stop": NOT_RUNNING,
    "compress": "Not compressed",
    "undo": "Took back the last turn (2 messages): “hello” and what followed.",
    "retry": "echo: hello",
    "memory": "Memory is on.",
    "remember": "what shall be remembered?",
    "search": "which words?",
    "forget": "what shall be forgotten?",
    "model": "No model answers",
    "status": "session ",
    "unfold": NO_TOOL_CALLED,
    "usage": "1 turn, 0 compressions",
    "edit": "/edit needs a terminal",
    "save": "Saved 2 messages to ",
    "copy": NO_CLIPBOARD,
    "help": "/new",
    "quit": "",
}
"""The beginning of each command's answer after one message."""
TO_A_GUEST = {"model": OWNERS}
"""The answers for a guest in a chat, where they differ."""


def test_every_command_is_written_as_the_platforms_take_it() -> None:
    names = [name for command in TABLE for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    for command in TABLE:
        assert command.where, "a command that nobody is offered"
        assert command.name.isalpha()
        assert command.name == command.name.lower()
        assert 1 <= len(command.name) <= 32
        assert 1 <= len(command.help) <= 256
        assert command.help.endswith(".")


@pytest.mark.parametrize("command", OFFERED["terminal"].values(), ids=lambda command: command.name)
async def test_terminal_answers_every_command_that_it_offers(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        for name in (command.name, *command.aliases):
            rest = f" {conversation.session_id}" if command.name == "resume" else ""
            try:
                answered = await run_command(conversation, f"/{name}{rest}", asyncio.Event())
            except UsageError as error:
                answered = Answered(error.line())
            assert answered.say is not None or answered.text.startswith(BEGINNINGS[command.name])
            assert answered.over == (command.name == "quit")
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(2,)]


@pytest.mark.parametrize("command", OFFERED["chat"].values(), ids=lambda command: command.name)
async def test_chat_answers_every_command_that_it_offers(tmp_path: Path, command: Command) -> None:
    said, answer = await in_chat(tmp_path, "hello", f"/{command.name}")
    assert said == "echo: hello"
    assert answer.startswith({**BEGINNINGS, **TO_A_GUEST}[command.name])
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(3 if command.name == "retry" else 2,)]


async def test_help_lists_what_the_surface_offers_and_nothing_else(tmp_path: Path) -> None:
    async with at_terminal(tmp_path / "terminal") as conversation:
        # What is too wide for its column has what it means in a row below.
        listed = re.sub(r"\n +", " ", await ask(conversation, "/help")).splitlines()
    [told] = await in_chat(tmp_path / "chat", "/help")
    for surface, lines in (("terminal", listed), ("chat", told.splitlines())):
        offered = [command for command in TABLE if surface in command.where]
        assert len(lines) == len(offered)
        for line, command in zip(lines, offered, strict=True):
            assert line.startswith(f"/{command.usage}")
            assert line.endswith(command.help)


async def test_unknown_command_is_refused_at_a_terminal_and_a_message_in_a_chat(tmp_path: Path) -> None:
    async with at_terminal(tmp_path / "terminal") as conversation:
        with pytest.raises(UsageError, match=r"no command /sesions \(did you mean /sessions\?\)"):
            await ask(conversation, "/sesions")
        with pytest.raises(UsageError, match=r"there is no command /x{40}$"):
            await ask(conversation, f"/{'x' * 100_000}")
    chat_lacks = [f"/{command.name}" for command in TABLE if "chat" not in command.where]
    assert await in_chat(tmp_path / "chat", *chat_lacks) == [f"echo: {text}" for text in chat_lacks]


@pytest.mark.parametrize(
    ("typed", "ours"),
    [(f"/{name} x", command.name) for command in TABLE for name in command.elsewhere],
)
async def test_name_from_another_program_suggests_our_command(tmp_path: Path, typed: str, ours: str) -> None:
    assert find_command("terminal", typed) is None
    async with at_terminal(tmp_path) as conversation:
        with pytest.raises(UsageError, match=rf"did you mean /{ours}\?\)"):
            await ask(conversation, typed)
        with pytest.raises(UsageError) as refused:
            await ask(conversation, "/doctor dog")
        assert "In a shell `hermes doctor` does it" in refused.value.line()


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("/title", "title", ""),
        ("/title  Stamps & co ", "title", "Stamps & co"),
        ("/title\nStamps", "title", "Stamps"),
        ("/TITLE@SomeBot Stamps", "title", "Stamps"),
        ("/memory OFF", "memory", "OFF"),
        (" /title x", None, ""),
        ("/ title", None, ""),
        ("/", None, ""),
        ("/titles", None, ""),
        ("title", None, ""),
        ("", None, ""),
    ],
)
def test_command_is_read_in_one_way_everywhere(surface: Surface, text: str, name: str | None, rest: str) -> None:
    typed = find_command(surface, text)
    assert (typed.command.name if typed else None) == name
    assert (typed.rest if typed else "") == rest


async def test_completion_offers_the_table_and_what_may_follow(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        here = AtTerminal(conversation, asyncio.Event())
        assert [text for text, _ in await complete(here, "/")] == [f"/{name}" for name in OFFERED["terminal"]]
        assert [text for text, _ in await complete(here, "/ses")] == ["/sessions"]
        assert [text for text, _ in await complete(here, "/memory o")] == ["on", "off"]
        assert await complete(here, "/resume 2") == [(conversation.session_id, "hello")]
        for nothing in ("se", "/title o", "/nonsense o", "/memory\no"):
            assert await complete(here, nothing) == []


@pytest.mark.contract("10.54")
async def test_sessions_are_offered_by_title_where_that_means_one(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        store = conversation.store
        ids = [(await store.create_session("cli", title=title)).id for title in ("Garden plans", "Twice", "Twice")]
        here = AtTerminal(conversation, asyncio.Event())
        assert await complete(here, "/resume gard") == [("Garden plans", ids[0])]
        assert await complete(here, "/resume PLANS") == [("Garden plans", ids[0])]
        assert await complete(here, "/resume Twice") == []
        assert set(await complete(here, "/resume ")) == set(zip(ids, ("Garden plans", "Twice", "Twice"), strict=True))
        assert await complete(here, f"/resume {ids[1]}") == [(ids[1], "Twice")]


@pytest.mark.contract("10.54")
async def test_more_sessions_are_offered_than_are_listed(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        oldest, *_ = [(await conversation.store.create_session("cli", title=f"Talk {n}")).id for n in range(30)]
        here = AtTerminal(conversation, asyncio.Event())
        assert len(await complete(here, "/resume ")) == 10
        assert len(await complete(here, "/resume T")) == 30
        assert await complete(here, f"/resume {oldest}") == [(oldest, "Talk 0")]


async def test_before_the_first_message_commands_speak_of_the_session_that_will_begin(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        assert await ask(conversation, "/status") == BEGINS
        assert await ask(conversation, "/title  Two\n words ") == "Title: Two words"
        assert await ask(conversation, "/title") == "Two words"
        assert (await ask(conversation, "/memory OFF")).startswith("Incognito")
        assert (await ask(conversation, "/memory")).startswith("Memory is off (incognito).")
        with pytest.raises(UsageError, match="nothing to compress"):
            await ask(conversation, "/compress")
        with pytest.raises(UsageError, match="at most 200"):
            await ask(conversation, f"/title {'x' * 201}")
        await say(conversation, "hello")
        assert conversation.status.session == "Two words"
        assert conversation.status.memory == "incognito"
    assert rows(tmp_path, "SELECT title FROM sessions") == [("Two words",)]
    assert rows(tmp_path, "SELECT count(*) FROM hermes_incognito_sessions") == [(1,)]


@pytest.mark.contract("2.6")
async def test_compression_that_is_stopped_at_a_terminal_removes_nothing(tmp_path: Path) -> None:
    hanging = says("They talked", ending="hang")
    replies = [says(f"reply {number} " * 200) for number in range(8)]
    async with LoopbackServer([*replies, hanging]) as server:
        settings = {"model__base_url": server.base_url, "model__default": "loop-1", "compression__idle": 0}
        async with at_terminal(tmp_path, **settings) as conversation:
            for number in range(8):
                await say(conversation, f"{number} stamps from Malta")
            stop = asyncio.Event()
            server.asked.clear()
            compressing = asyncio.create_task(run_command(conversation, "/compress stamps", stop))
            await server.asked.wait()
            stop.set()
            assert await compressing == Answered(NOT_COMPRESSED)
    assert rows(tmp_path, "SELECT 1 FROM hermes_compressions") == []
