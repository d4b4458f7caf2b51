"""Notices of reviews: a note is announced once, with the person's next reply, even if agent or process end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.conversation import TerminalConversation
from hermes.clock import SystemClock
from hermes.events import MemoryUpdated, TurnEvent
from hermes.scope import OWNER as OWNERS
from hermes.slash.context import Say
from hermes.store.people import mark
from hermes.store.reviews import keep_remarks
from tests.gateway.bot_api import BotApi
from tests.gateway.core import Core, FakePlatform, load_app, message, running_core
from tests.gateway.people import GROUP, GUEST, OTHER, OWNER, Obedient
from tests.gateway.processes import BotGateway, appears, rows, scripted_model, wait_until

SAVED = "💾 Memory updated"
WAITING = "SELECT scope FROM hermes_note_remarks"
REVIEWED = "SELECT 1 FROM hermes_reviews"
FIGS = MemoryUpdated("user", "add", "likes figs")
OFTEN: dict[str, Any] = {"memory__review_every": 1}


async def say(core: Core, person: str, text: str = "hello", *, group: bool = False) -> list[str]:
    """Return everything that a chat gets for a message."""
    chat = GROUP if group else person
    before = len(core.platform.texts(chat))
    for said in (text, "/status"):  # what is sent goes in order: before the second answer came all of the first
        await core.platform.deliver(message(said, chat, kind="group" if group else "dm", author=person))
    await core.platform.until(lambda: core.platform.texts(chat)[-1:] != [] and _is_status(core, chat, before))
    return core.platform.texts(chat)[before:-1]


def _is_status(core: Core, chat: str, before: int) -> bool:
    return len(core.platform.texts(chat)) > before and core.platform.texts(chat)[-1].startswith("session ")


async def have_noted(core: Core, home: Path, model: Obedient, person: str) -> None:
    """Send a message, and have a review store a note after the reply."""
    await core.store.write(lambda tx: mark(tx, core.platform.name, OWNER, is_owner=True, now=1.0))
    model.review_notes = "likes figs"
    assert await say(core, person) == ["fine"]
    await appears(home, WAITING)


@pytest.mark.contract("4.10", "4.12")
@pytest.mark.parametrize("person", [OWNER, GUEST])
@pytest.mark.parametrize("meanwhile", ["nothing", "new", "eviction"])
async def test_note_is_announced_with_the_next_reply_though_its_agent_is_gone(
    tmp_path: Path, person: str, meanwhile: str
) -> None:
    model = Obedient()
    settings = {**OFTEN, "gateway__cached_agents": 1 if meanwhile == "eviction" else 1000}
    async with running_core(tmp_path, model, **settings) as core:
        await have_noted(core, tmp_path, model, person)
        if meanwhile == "new":
            await say(core, person, "/new")
        elif meanwhile == "eviction":
            assert await say(core, OTHER) == ["fine"]
        assert await say(core, person) == ["fine", SAVED]
        assert await say(core, person) == ["fine"], "once"
    assert rows(tmp_path, WAITING) == []


@pytest.mark.contract("4.10", "4.12")
async def test_note_is_announced_after_a_restart_on_another_platform(tmp_path: Path) -> None:
    model = Obedient()
    async with running_core(tmp_path, model, **OFTEN) as core:
        await have_noted(core, tmp_path, model, OWNER)
    async with running_core(tmp_path, model, platform=FakePlatform("other")) as core:
        await core.store.write(lambda tx: mark(tx, "other", "42", is_owner=True, now=1.0))
        await core.platform.deliver(message("hello", "42", author="42", platform="other"))
        await core.platform.until(lambda: len(core.platform.sent) == 2)
        assert core.platform.texts("42") == ["fine", SAVED]


@pytest.mark.contract("1.9", "4.10")
async def test_note_about_one_person_is_announced_to_nobody_else(tmp_path: Path) -> None:
    model = Obedient()
    async with running_core(tmp_path, model, **OFTEN) as core:
        await have_noted(core, tmp_path, model, GUEST)
        for person in (OWNER, OTHER):
            assert await say(core, person) == ["fine"]
        assert await say(core, GUEST, group=True) == ["fine"], "others read it there"
        assert await say(core, GUEST) == ["fine", SAVED]


@pytest.mark.contract("1.9", "4.10")
async def test_note_about_a_group_is_never_announced(tmp_path: Path) -> None:
    model = Obedient()
    model.review_notes = "likes figs"
    async with running_core(tmp_path, model, **OFTEN) as core:
        assert await say(core, OWNER, group=True) == ["fine"]
        await appears(tmp_path, REVIEWED)
    assert list(tmp_path.glob("memories/*/*/USER.md")), "it is noted"
    assert rows(tmp_path, WAITING) == []


@pytest.mark.contract("4.10")
async def test_no_notices_are_stored_when_a_setting_disables_them(tmp_path: Path) -> None:
    model = Obedient()
    model.review_notes = "likes figs"
    async with running_core(tmp_path, model, display__memory_notices=False, **OFTEN) as core:
        assert await say(core, OWNER) == ["fine"]
        await appears(tmp_path, REVIEWED)
        assert rows(tmp_path, WAITING) == []
        assert await say(core, OWNER) == ["fine"]


@pytest.mark.contract("4.10")
async def test_gateway_without_notices_leaves_them_to_the_terminal(tmp_path: Path) -> None:
    model = Obedient()
    async with running_core(tmp_path, model, gateway__notices=False, **OFTEN) as core:
        await have_noted(core, tmp_path, model, OWNER)
        assert await say(core, OWNER) == ["fine"]
        assert await hear_in_terminal(core, tmp_path) == [FIGS]


@pytest.mark.contract("4.10", "4.12")
async def test_note_announced_in_a_terminal_is_not_repeated_in_a_chat(tmp_path: Path) -> None:
    model = Obedient()
    async with running_core(tmp_path, model, **OFTEN) as core:
        await have_noted(core, tmp_path, model, OWNER)
        assert await hear_in_terminal(core, tmp_path) == [FIGS]
        assert await hear_in_terminal(core, tmp_path) == []
        assert await say(core, OWNER) == ["fine"]


async def hear_in_terminal(core: Core, home: Path) -> list[TurnEvent]:
    """Return the notices of a turn in a terminal. It has no model, so it reviews nothing itself."""
    conversation = TerminalConversation(load_app(home, SystemClock()), core.store)
    told = [event async for event in conversation.take_turn(Say("hello"), asyncio.Event())]
    await conversation.end()
    return [event for event in [*told, *conversation.pending_events] if isinstance(event, MemoryUpdated)]


@pytest.mark.contract("4.10")
async def test_only_one_of_two_processes_announces_a_note(tmp_path: Path) -> None:
    app = load_app(tmp_path, SystemClock())
    async with await app.open_store() as here, await app.open_store() as there:
        await here.write(lambda tx: keep_remarks(tx, OWNERS, [FIGS]))
        both = [TerminalConversation(app, store) for store in (here, there)]
        await asyncio.gather(*(conversation.end() for conversation in both))
        assert [event for conversation in both for event in conversation.pending_events] == [FIGS]


@pytest.mark.processes
@pytest.mark.contract("4.10", "4.12", "P2")
def test_note_of_a_killed_review_is_announced_once_after_the_restart(tmp_path: Path) -> None:
    note = {"says": {"calls": [["memory", '{"target": "user", "content": "likes figs"}']]}}
    hang = {"says": {"text": "done", "delay": 60}}
    answers = [{"says": {"text": "hi"}}, note, hang]
    with BotApi() as api, scripted_model(answers, then={"says": {"text": "fine"}}) as model:
        ann = api.person("Ann")
        gateway = BotGateway(tmp_path / "home", api, model, {"memory.review_every": 1})
        with gateway:
            api.say(ann.dm, "I like figs", ann)
            wait_until(lambda: gateway.rows(WAITING))
            wait_until(lambda: len(model.requests()) == len(answers))  # else what hangs were the next turn's answer
            gateway.wait_sent()
            gateway.kill()
        assert api.texts(ann.id) == ["hi"]
        with gateway:
            for number in (1, 2):
                api.say(ann.dm, "hello", ann)
                wait_until(lambda n=number: api.texts(ann.id).count("fine") == n)  # type: ignore[misc]
            gateway.stop()
        assert api.texts(ann.id) == ["hi", "fine", SAVED, "fine"]
