"""A title given incognito stays out of memory, however the conversation continues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hermes.cli.commands import run_command
from hermes.cli.conversation import TerminalConversation, find_live
from hermes.clock import SystemClock
from hermes.slash.context import Say
from tests.gateway.core import load_app
from tests.gateway.processes import rows
from tests.memory.spy import install_spy

TITLE = "Divorce plan"


async def talk(home: Path, lines: Sequence[str]) -> None:
    """Run a chat at a terminal that begins a session; the last line resumes it, as after a restart."""
    app = load_app(home, SystemClock(), memory__review_every=0, memory__provider="spy")
    async with await app.open_store() as store:
        first, again = TerminalConversation(app, store), TerminalConversation(app, store)
        for line in lines[:-1]:
            await _type(first, line)
        session = first.session_id or ""
        await first.end()
        await again.resume(await store.read(lambda tx: find_live(store, tx, session)))
        await _type(again, lines[-1])
        await again.end()


async def _type(conversation: TerminalConversation, line: str) -> None:
    if line.startswith("/"):
        await run_command(conversation, line, asyncio.Event())
        return
    async for _ in conversation.take_turn(Say(line), asyncio.Event()):
        pass


def told_titles(home: Path) -> list[str | None]:
    """Return the titles that the provider received."""
    return [json.loads(str(about))["title"] for (about,) in rows(home, "SELECT about FROM hermes_memory_places")]


@pytest.mark.contract("4.11")
@pytest.mark.parametrize(
    ("lines", "title"),
    [
        (["/memory off", f"/title {TITLE}", "hello", "/memory on", "I like figs"], None),
        (["hello", "/memory off", f"/title {TITLE}", "/memory on", "I like figs"], None),
        (["/memory off", f"/title {TITLE}", "hello", "/memory on", "/title Figs", "I like figs"], "Figs"),
        (["/memory off", "hello", "/memory on", f"/title {TITLE}", "I like figs"], TITLE),
    ],
    ids=["begun incognito", "incognito later", "another one after it", "given after it"],
)
async def test_a_provider_hears_of_no_title_that_was_given_incognito(
    tmp_path: Path, lines: list[str], title: str | None
) -> None:
    install_spy(tmp_path)
    await talk(tmp_path, lines)
    assert told_titles(tmp_path) == [title]
    session = rows(tmp_path, "SELECT title FROM sessions")
    assert session in ([(TITLE,)], [("Figs",)]), "the person still sees it"


async def test_nothing_is_left_of_a_hidden_title_when_its_session_is_deleted(tmp_path: Path) -> None:
    install_spy(tmp_path)
    await talk(tmp_path, ["/memory off", f"/title {TITLE}", "hello", "/memory on", "I like figs"])
    hidden = "SELECT count(*) FROM hermes_memory_values WHERE kind = 'hidden title'"
    assert rows(tmp_path, hidden) == [(1,)]
    app = load_app(tmp_path, SystemClock())
    async with await app.open_store() as store:
        [(session,)] = rows(tmp_path, "SELECT id FROM sessions")
        await store.write(lambda tx: store.deletions.delete(tx, str(session)))
    assert rows(tmp_path, hidden) == [(0,)]
