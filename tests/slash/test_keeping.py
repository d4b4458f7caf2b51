"""`/save` and `/copy`."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.cli.commands import NO_CLIPBOARD
from hermes.cli.conversation import TerminalConversation
from hermes.errors import UsageError
from tests.llm.loopback import LoopbackServer, says
from tests.slash.surfaces import ask, at_terminal, say

CODE = "Two of them:\n```python\nprint('first')\n```\nand\n```\nsecond\n```\nso."


@asynccontextmanager
async def having_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TerminalConversation]:
    """A conversation with two replies, the older one with code, in an empty folder."""
    here = folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    async with LoopbackServer([says(CODE), says("A plain reply.")]) as server:
        settings = {"model__base_url": server.base_url, "model__default": "loop-1", "compression__idle": 0}
        async with at_terminal(folder / "home", **settings) as conversation:
            await say(conversation, "some code, please")
            await say(conversation, "thank you")
            yield conversation


@pytest.mark.contract("10.32")
async def test_a_conversation_is_saved_under_its_title_and_never_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with having_said(tmp_path, monkeypatch) as conversation:
        by_id = tmp_path / "here" / f"{conversation.session_id}.md"
        assert await ask(conversation, "/save") == f"Saved 4 messages to {by_id}."
        assert stat.S_IMODE(by_id.stat().st_mode) == 0o600
        await ask(conversation, "/title Code: a/b, ünd so")
        assert (await ask(conversation, "/save")).endswith("/Code-a-b-ünd-so.md.")
        assert (await ask(conversation, "/save")).endswith("/Code-a-b-ünd-so-2.md.")
        assert "## user" in (tmp_path / "here" / "Code-a-b-ünd-so.md").read_text(encoding="utf-8")
        mine = tmp_path / "here" / "mine.md"
        mine.write_text("mine", encoding="utf-8")
        with pytest.raises(UsageError, match=r"mine\.md is there already"):
            await ask(conversation, "/save mine.md")
        assert mine.read_text(encoding="utf-8") == "mine"
        await ask(conversation, "/save mine.md --force")
        assert mine.read_text(encoding="utf-8").startswith("# Code: a/b, ünd so")


@pytest.mark.contract("10.32")
async def test_the_end_of_the_name_says_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with having_said(tmp_path, monkeypatch) as conversation:
        await ask(conversation, "/save one file.json")
        told = json.loads((tmp_path / "here" / "one file.json").read_text(encoding="utf-8"))
        assert [message["role"] for message in told["messages"]] == ["user", "assistant"] * 2
        await ask(conversation, f"/save {tmp_path / 'lines.jsonl'}")
        lines = (tmp_path / "lines.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["session", *["message"] * 4]
        with pytest.raises(UsageError, match=r"'x\.pdf' does not say what to write"):
            await ask(conversation, "/save x.pdf")
        with pytest.raises(UsageError, match="cannot write") as refused:
            await ask(conversation, "/save nowhere/x.md")
        assert refused.value.hint == "`/save FILE` names another place"


@pytest.mark.parametrize("name", ["~nobody-at-all/x.md", "a\0b.md", f"{'x' * 300}.md", "half\ud800.md"])
async def test_invalid_file_name_is_refused_with_a_readable_error(tmp_path: Path, name: str) -> None:
    async with at_terminal(tmp_path) as conversation:
        await say(conversation, "hello")
        for command in (f"/save {name}", f"/save {name} --force"):
            with pytest.raises(UsageError, match="cannot be a file"):
                await ask(conversation, command)


async def test_before_anything_was_said_there_is_nothing_to_take_along(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as conversation:
        for command in ("/save", "/copy"):
            with pytest.raises(UsageError, match="nothing was said"):
                await ask(conversation, command)


@pytest.fixture
def clipboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: None) -> Path:
    """Install a fake `xclip`, and return the file that holds its input."""
    file, program = tmp_path / "clipboard", tmp_path / "bin" / "xclip"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec /bin/cat > '{file}'\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("hermes.cli.commands.COPY_TIMEOUT_SECONDS", 60.0)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return file


@pytest.mark.contract("10.32")
async def test_replies_and_code_are_copied_and_it_is_said_how(
    tmp_path: Path, clipboard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with having_said(tmp_path, monkeypatch) as conversation:
        told = await ask(conversation, "/copy")
        assert told == "The last reply, 14 characters, is in the clipboard (xclip)."
        assert clipboard.read_text(encoding="utf-8") == "A plain reply."
        assert (await ask(conversation, "/copy 2")).startswith("Reply 2 from the end")
        assert clipboard.read_text(encoding="utf-8") == CODE
        assert (await ask(conversation, "/copy code")).startswith("The last code block")
        assert clipboard.read_text(encoding="utf-8") == "second\n"
        for wrong in ("9" * 5000, "0", "3", "x"):
            with pytest.raises(UsageError, match="takes `code` or a number from 1, the last reply, to 2"):
                await ask(conversation, f"/copy {wrong}")


async def test_where_nothing_can_take_it_a_file_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    async with having_said(tmp_path, monkeypatch) as conversation:
        with pytest.raises(UsageError, match=NO_CLIPBOARD) as refused:
            await ask(conversation, "/copy")
        assert "`/save FILE`" in refused.value.line()
