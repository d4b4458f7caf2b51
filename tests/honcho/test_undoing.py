"""Retracted messages are retracted at Honcho too: removed from the queue, deleted with their conclusions, or
reported as staying."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hermes.agent.undo import STAYS_IN_MEMORY
from hermes.llm.events import Reply
from hermes.llm.model import ModelRequest
from hermes.memory.health import LATE_NOTICE
from hermes.memory.provider import Delivered, Later
from hermes.store.people import mark
from tests.conftest import Ran
from tests.gateway.core import Core, echo, message, running_core
from tests.gateway.processes import rows
from tests.honcho.between import Between, Instead
from tests.honcho.configuring import Machine
from tests.honcho.misbehaving import Misbehaving
from tests.honcho.writing import HERE, OWNER, Arrived, Lane, Writer
from tests.llm.scripted import ScriptedAnswer
from tests.memory_server.serving import ROOT, Served, inside
from tests.memory_server.talking import settle

Script = Callable[[ModelRequest], ScriptedAnswer]
CHAT = "agent-main-fake-dm-7"
PATIENT: dict[str, Any] = {"memory__deadline": 60.0, "memory__first_deadline": 60.0}
"""Deadlines that cover the delivery of a retracted message."""
CAT, DOG = "My cat is called Mitzi.", "My dog is called Zorro."


@asynccontextmanager
async def chatting(
    machine: Machine, url: str, workspace: str, script: Script = echo, **settings: Any
) -> AsyncIterator[Core]:
    machine.write({"baseUrl": url, "workspace": workspace, "peerName": "ann", "aiPeer": "bot"})
    async with running_core(machine.home, script, memory__provider="honcho", **settings) as core:
        await core.store.write(lambda tx: mark(tx, "fake", "ann", is_owner=True, now=1.0))
        yield core


async def say(core: Core, text: str) -> str:
    """Send a message, and return the agent's answer without memory notices."""

    def answers() -> list[str]:
        return [
            answer for _, answer in core.platform.sent if not answer.startswith((LATE_NOTICE, "memory provider honcho"))
        ]

    before = len(answers())
    await core.platform.deliver(message(text))
    await core.platform.until(lambda: len(answers()) > before)
    return answers()[-1]


async def delivered(core: Core, home: Path) -> None:
    """Wait until memory's queue is empty."""
    while rows(home, "SELECT 1 FROM hermes_queue WHERE queue = 'memory:honcho' AND state = 'waiting'"):
        await core.store.clock.sleep(0.05)


def learned(server: Served, workspace: str) -> None:
    with inside(server, workspace) as http:
        settle(http)


def concluded(arrived: Arrived) -> str:
    return "\n".join(one["content"] for one in arrived.conclusions())


@pytest.mark.contract("10.27")
async def test_delivered_messages_are_deleted_with_their_conclusions(
    machine: Machine, server: Served, workspace: str, arrived: Arrived
) -> None:
    async with chatting(machine, server.url, workspace, **PATIENT) as core:
        await say(core, CAT)
        await say(core, DOG)
        await delivered(core, machine.home)
        learned(server, workspace)
        assert "Mitzi" in concluded(arrived)
        assert "Zorro" in concluded(arrived)
        told = await say(core, "/undo")
        assert told.splitlines()[-1] == "The undone messages are deleted at honcho as well."
        learned(server, workspace)
        assert [text for _, text in arrived.said(CHAT)] == [CAT, f"echo: {CAT}"]
        assert "Mitzi" in concluded(arrived)
        assert "Zorro" not in concluded(arrived)


@pytest.mark.contract("10.26", "10.27")
async def test_a_retry_leaves_the_message_once_and_the_new_reply(
    machine: Machine, server: Served, workspace: str, arrived: Arrived
) -> None:
    replies = iter([Reply("Who?"), Reply("A fine name.")])
    async with chatting(machine, server.url, workspace, lambda _: next(replies)) as core:
        await say(core, CAT)
        await delivered(core, machine.home)
        assert await say(core, "/retry") == "A fine name."
        await delivered(core, machine.home)
        assert [text for _, text in arrived.said(CHAT)] == [CAT, "A fine name."]


@pytest.mark.contract("10.27")
async def test_another_server_keeps_the_messages_and_the_person_is_informed(
    machine: Machine, server: Served, workspace: str, arrived: Arrived
) -> None:
    async with (
        Misbehaving(server.url, is_foreign=True).served() as proxy,
        chatting(machine, proxy.url, workspace, **PATIENT) as core,
    ):
        await say(core, CAT)
        await delivered(core, machine.home)
        told = await say(core, "/undo")
        stays = f"this server cannot delete messages: 2 of them stay in its session {CHAT}"
        assert told.splitlines()[-1] == f"Something stays at honcho: {stays}"
        assert len(arrived.messages(CHAT)) == 2
        reasons = rows(machine.home, "SELECT reason FROM hermes_queue WHERE state = 'dead'")
        assert reasons == [(stays,)], "`hermes memory outbox list` shows it"
        for text in (CAT, "/undo"):
            await core.platform.deliver(message(text, "8", author="bob"))
            await core.platform.until(lambda said=text: len(core.platform.texts("8")) == 1 + (said == "/undo"))  # type: ignore[misc]
            await delivered(core, machine.home)
        assert core.platform.texts("8")[-1].splitlines()[1:] == [STAYS_IN_MEMORY], "a guest hears nothing of servers"


@pytest.mark.contract("10.27")
async def test_what_waits_while_the_server_is_away_is_withdrawn_or_deleted_when_it_is_back(
    machine: Machine, server: Served, between: Between, workspace: str, arrived: Arrived
) -> None:
    async with chatting(machine, between.url, workspace, lambda _: Reply("Fine.")) as core:
        await say(core, CAT)
        await delivered(core, machine.home)
        between.rule = lambda _: Instead(status=503)
        await say(core, DOG)
        told = await say(core, "/undo")
        between.rule = lambda _: None
        assert told.splitlines()[1:] in ([], ["honcho received it and deletes it as soon as it can be reached."])
        await delivered(core, machine.home)
        await say(core, "And now?")
        await delivered(core, machine.home)
        assert [text for _, text in arrived.said(CHAT)] == [CAT, "Fine.", "And now?", "Fine."]


@pytest.mark.processes
@pytest.mark.contract("10.27", "P1")
def test_a_process_that_is_killed_right_after_taking_back_still_has_it_deleted(
    machine: Machine, server: Served, workspace: str, arrived: Arrived, hermes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write({"baseUrl": server.url, "workspace": workspace, "peerName": "ann", "aiPeer": "bot"})
    (machine.home / "config.yaml").write_text("memory:\n  provider: honcho\n")
    monkeypatch.setenv("HERMES_HOME", str(machine.home))
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.honcho.undoer"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == -signal.SIGKILL
    [session] = arrived.sessions()
    said = [text for peer, text in arrived.said(session) if peer == "ann" and not text.startswith("USER.md")]
    assert said == [CAT, DOG], "nothing was deleted yet"
    ran: Ran = hermes("memory", "outbox", "deliver")
    assert ran.code == 0, ran.err
    assert [text for peer, text in arrived.said(session) if peer == "ann"] == [CAT]


@pytest.mark.contract("10.27")
async def test_messages_of_other_times_and_conversations_stay(writer: Writer, server: Served, workspace: str) -> None:
    plugin, arrived = writer(server.url, workspace=workspace), Arrived(server, workspace)
    lane, at = Lane(plugin), 1_800_000_000.123456
    for number in range(3):
        lane.put(f"message {number}", at=at + number)
    other = Lane(plugin, replace(HERE, session_id="s9"), "o")
    other.put("of another conversation", at=at)
    await other.drain()
    lane.put("", "undo", None, {"session_id": HERE.session_id, "times": [at, at + 2], "entries": []})
    await lane.drain()
    assert {text for _, text in arrived.said()} == {"message 1", "of another conversation"}


@pytest.mark.contract("10.27")
async def test_tools_conclusions_are_deleted_and_other_changes_reported(
    writer: Writer, server: Served, workspace: str, arrived: Arrived
) -> None:
    plugin = writer(server.url, workspace=workspace)
    lane = Lane(plugin)
    lane.put("hello", at=1_800_000_000.25)
    made = lane.put("", "own", OWNER, {"act": "conclude", "content": "Likes figs.", "about": "user"})
    await lane.drain()
    concluded = lane.outcomes[made]
    assert isinstance(concluded, Delivered)
    entries = [
        {"kind": "own", "data": {"act": "conclude", "content": "Likes figs.", "about": "user"}, "note": concluded.note},
        {"kind": "own", "data": {"act": "card", "lines": ["x"], "about": "user"}, "note": None},
    ]
    told = lane.put("", "undo", None, {"session_id": HERE.session_id, "times": [1_800_000_000.25], "entries": entries})
    await lane.drain()
    assert "stays as it is" in str(lane.outcomes[told])
    assert (arrived.conclusions(), arrived.messages()) == ([], [])


@pytest.mark.contract("10.27")
@pytest.mark.parametrize("kind", ["undo", "forget"])
async def test_message_that_arrives_after_its_retraction_is_deleted_too(
    writer: Writer, server: Served, between: Between, workspace: str, arrived: Arrived, kind: str
) -> None:
    plugin, at = writer(between.url, workspace=workspace), 1_800_000_000.5
    lane, gone = Lane(plugin), Lane(plugin, name="u")
    key, tried_at = lane.put("hello", at=at), lane.clock.now()
    between.rule = lambda asked: Instead(cut_off=True) if asked.what == "messages" else None
    [put_off] = await lane.attempt()
    assert isinstance(put_off, Later)
    between.rule = lambda _: None
    [sent] = [asked for asked in between.asked if asked.what == "messages"]
    wish = {"session_id": HERE.session_id, "times": [at], "entries": [], "may_arrive": {key: tried_at}}
    told = gone.put("", kind, None, wish)
    [put_off] = await gone.attempt()
    assert isinstance(put_off, Later), "nothing is there yet"
    with server.client() as client:  # by now the server gets to it
        client.post(sent.path, json=sent.body).raise_for_status()
    await gone.drain()
    assert isinstance(gone.outcomes[told], Delivered)
    assert arrived.messages() == []
