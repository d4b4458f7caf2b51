"""Honcho's configuration while a gateway runs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.embedded.connect import connect, stop
from hermes.embedded.rendezvous import Place
from hermes.honcho.plugin import HonchoPlugin
from hermes.memory.provider import Address, Conversation, MemorySession
from tests.gateway.core import Core, message, running_core
from tests.gateway.processes import GatewayProcess, appears, write_config
from tests.honcho.configuring import Machine
from tests.honcho.hearing import OPENS
from tests.memory.page import install
from tests.plain_http import PLAIN

NOBODY = {"baseUrl": "http://127.0.0.1:9"}
"""An unreachable server, so that messages stay queued."""
PATIENT: dict[str, Any] = {"memory__provider": "honcho", "memory__deadline": 60.0, "memory__first_deadline": 60.0}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """The addresses of all opened sessions."""
    seen: list[Address] = []
    real = HonchoPlugin.open

    def open_session(self: HonchoPlugin, conversation: Conversation, address: Address) -> MemorySession:
        seen.append(address)
        return real(self, conversation, address)

    monkeypatch.setattr(HonchoPlugin, "open", open_session)
    return seen


async def say(core: Core, text: str) -> None:
    before = len(core.platform.sent)
    await core.platform.deliver(message(text))
    await core.platform.until(lambda: len(core.platform.sent) > before)


@pytest.mark.contract("4.4", "4.5")
async def test_edited_identity_key_reopens_sessions_and_other_keys_do_not(
    machine: Machine, opened: list[Address]
) -> None:
    machine.write({"workspace": "one", **NOBODY, "hosts": {"hermes": {"aiPeer": "bot"}}})
    async with running_core(machine.home, **PATIENT) as core:
        await say(core, "hello")
        elsewhere = {"apiKey": "k", "baseUrl": "http://127.0.0.1:10"}
        machine.write({"workspace": "one", **elsewhere, "hosts": {"hermes": {"aiPeer": "bot"}, "x": {}}})
        await say(core, "again")
        assert len(opened) == 1, "credentials and foreign keys are not frozen into a session"
        machine.write({"workspace": "two", **NOBODY, "hosts": {"hermes": {"aiPeer": "bot2"}}})
        await say(core, "and now")
        assert [(a.data["workspace"], a.data["aiPeer"]) for a in opened] == [("one", "bot"), ("two", "bot2")]
        machine.write("{")
        await say(core, "broken")
        assert len(opened) == 2, "the last good one stays in force"


@pytest.mark.contract("4.4")
@pytest.mark.parametrize("provider", ["none", "diary"])
async def test_with_another_provider_or_none_nobody_looks_at_honchos_files(machine: Machine, provider: str) -> None:
    machine.write({"peerName": "ann"})
    install(machine.home)
    async with running_core(machine.home, memory__provider=provider) as core:
        await say(core, "hello")
        with OPENS.counted() as operations:
            await say(core, "again")
    assert operations == []


@pytest.mark.contract("4.4")
async def test_with_honcho_a_message_opens_no_file_of_its_either(machine: Machine) -> None:
    machine.write({"peerName": "ann", **NOBODY})
    async with running_core(machine.home, memory__provider="honcho") as core:
        await say(core, "hello")
        with OPENS.counted() as operations:
            await say(core, "again")
        assert operations == []
        with OPENS.counted() as operations:  # from before the change: work beside the turns may read it at once
            machine.write({"peerName": "bob", **NOBODY})
            await say(core, "changed")
            assert any("honcho.json', 'r'" in one for one in operations), "the hook hears a read"


@pytest.mark.contract("P1")
async def test_messages_wait_for_honcho_in_the_outbox(machine: Machine) -> None:
    machine.write(NOBODY)
    async with running_core(machine.home, memory__provider="honcho") as core:
        await say(core, "I like figs")

        def rows(tx: Any) -> list[Path]:
            return list(tx.execute("SELECT lane FROM hermes_queue WHERE queue = 'memory:honcho' AND state <> 'done'"))

        waiting = await core.store.read(rows)
        assert len(waiting) >= 2


@pytest.mark.processes
@pytest.mark.contract("5.6", "P5")
def test_a_gateway_says_at_its_start_that_a_pin_leaves_somebody_out(machine: Machine) -> None:
    settings = {"api.enabled": True, "api.port": 0, "memory.provider": "honcho", "gateway.allow": "telegram:17"}
    write_config(machine.home, settings)
    machine.write({"peerName": "ann", "pinUserPeer": True})
    with GatewayProcess(machine.home, env={"HOME": str(machine.folder)}) as gateway:
        gateway.stop()
    assert "`hermes gateway people --me telegram:17` says that it is yours" in gateway.output()


@pytest.mark.processes
@pytest.mark.contract("9.2", "4.13")
async def test_messages_after_removal_of_the_memory_folder_go_to_a_new_server(machine: Machine) -> None:
    machine.write({"peerName": "ann", "workspace": "lab", "server": "embedded"})
    place = Place(machine.home / "memory", machine.home)

    async def remembered(core: Core, text: str) -> str:
        """Say something, wait for its delivery, and return the URL of the server that has it."""
        await say(core, text)
        await appears(machine.home, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM hermes_queue WHERE state = 'waiting')")
        found = await asyncio.to_thread(connect, place)
        headers = {"Authorization": f"Bearer {found.api_key}"}
        async with httpx.AsyncClient(base_url=found.base_url, headers=headers, verify=PLAIN) as client:
            sessions = (await client.post("/v3/workspaces/lab/sessions/list", json={})).json()["items"]
            path = f"/v3/workspaces/lab/sessions/{sessions[0]['id']}/messages/list"
            assert text in [one["content"] for one in (await client.post(path, json={})).json()["items"]]
        return found.base_url

    try:
        async with running_core(machine.home, **PATIENT) as core:
            first = await remembered(core, "before")
            shutil.rmtree(place.folder)
            assert await remembered(core, "after") != first
    finally:
        await asyncio.to_thread(stop, place)
