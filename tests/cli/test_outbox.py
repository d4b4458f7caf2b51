"""`hermes memory outbox deliver`: the process that delivers what others left, and how it starts."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes.app import App
from hermes.assembly import conversation_of
from hermes.cli import outbox
from hermes.clock import SystemClock
from hermes.db import leases
from hermes.home import Home
from hermes.memory.deliveries import Deliveries
from hermes.memory.provider import Entry, Outcome
from hermes.scope import OWNER
from hermes.types import Session
from tests.compression.hand_clock import HandClock
from tests.memory.delivering import left
from tests.memory.providers import PATIENT, Recorder
from tests.memory.remembering import active, begin, turn


class AdvancedClock(SystemClock):
    """A clock that can be advanced."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Slow(Recorder):
    """A provider whose batches take twelve seconds of the clock, and that is polled meanwhile."""

    def __init__(self, clock: AdvancedClock) -> None:
        super().__init__()
        self._clock = clock

    async def deliver(self, entries: Sequence[Entry], until: float) -> Sequence[Outcome]:
        self._clock.ahead += 12.0
        await asyncio.sleep(0.1)
        return await super().deliver(entries, until)


async def test_a_deliverer_goes_on_while_anything_moves_though_it_is_one_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "STALL_TIMEOUT_SECONDS", 30.0)  # less than all of it takes
    monkeypatch.setattr(outbox, "POLL_SECONDS", 0.01)
    monkeypatch.setattr("hermes.memory.deliveries.MAX_BATCH_ENTRIES", 1)
    clock = AdvancedClock()
    plugin = Slow(clock)
    async with active(tmp_path, plugin, PATIENT, clock=clock, delivers=False) as provider:
        memory = await begin(provider)
        for number in range(4):
            await turn(memory, f"message {number}")
        deliveries = Deliveries(provider, "test", 1)
        deliveries.start()
        await outbox.wait_for_deliveries(provider.store, deliveries)
        assert await left(provider) == []
        await deliveries.finish(0.0)
    assert plugin.told("said") == [f"message {number}" for number in range(4)]


async def test_the_lease_of_a_deliverer_is_kept_while_it_works_and_only_its_own_is_let_go(tmp_path: Path) -> None:
    clock = HandClock()
    async with active(tmp_path, Recorder(), clock=clock, delivers=False) as provider:
        store = provider.store

        async def holder() -> str | None:
            held = await store.read(lambda tx: leases.holder(tx, outbox.LEASE, now=store.clock.now()))
            return None if held is None else held.owner

        async with outbox.one_per_home(store, "first", ttl=30.0) as first:
            assert first
            for _ in range(6):  # it is renewed every ten seconds
                await clock.sleeper(10.0)
                clock.advance(10.0)
            async with outbox.one_per_home(store, "second", ttl=30.0) as second:
                assert not second
            assert await holder() == "first"
        assert await holder() is None


@pytest.mark.parametrize("profile", [None, "work"])
def test_a_deliverer_serves_the_home_that_it_was_started_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str | None
) -> None:
    started: list[tuple[Any, dict[str, Any]]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERMES_HOME", "here")
    Home.find(os.environ, profile).ensure()
    found = App.load(profile)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: started.append((command, how)))
    outbox.start_deliverer(found)
    [(command, how)] = started
    assert command[1:] == ["-P", "-m", "hermes", "memory", "outbox", "deliver", "--unless-running"]
    monkeypatch.chdir(how["cwd"])
    assert Home.find(how["env"]) == found.home


def test_a_deliverer_that_cannot_be_started_is_logged_and_no_error_of_the_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))

    def refuse(*_: object, **__: object) -> None:
        raise OSError("there is no such file")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with caplog.at_level(logging.WARNING):
        outbox.start_deliverer(App.load())
    assert "unsynced messages wait for the next one" in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="a folder that is in use cannot be removed there")
def test_a_question_from_a_folder_that_is_gone_is_answered(tmp_path: Path) -> None:
    here, gone = Path.cwd(), tmp_path / "gone"
    gone.mkdir()
    try:
        os.chdir(gone)
        gone.rmdir()
        session = Session(id="s", source="cli", started_at=0.0)
        assert conversation_of(session, OWNER).directory is None
    finally:
        os.chdir(here)
