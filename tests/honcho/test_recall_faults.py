"""Recall from a misbehaving Honcho server: a person never waits longer than the deadline and the model, and recall
works again as soon as the server does."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import cast

import pytest

from hermes.agent.turn import run_turn
from hermes.events import Replied
from hermes.honcho.plugin import HonchoPlugin
from hermes.llm.events import Reply
from hermes.memory.active import Deadlines
from hermes.memory.caller import Memory
from tests.agent.seam import open_seam
from tests.honcho.misbehaving import FAULTS, AtRandom, Misbehaving, never
from tests.honcho.recalling import ANN, PATIENT, Recalling
from tests.memory.providers import Recorder
from tests.scale import FULL, scale

SEED = random.SystemRandom().randrange(10**9) if FULL else int(os.environ.get("HERMES_SEED", "7"))
DEADLINES = Deadlines(first_turn=1.0, turn=0.5, tool=1.0, compress=0.5, close=1.0, prepare=1.0, deliver=3.0)
HASTY_TURN_INTERVAL = 4
"""Every n-th turn follows at once, without waiting for the preparation."""
TURNS, MIN_FAULTS_PER_KIND = scale(12, 500), scale(1, 50)
MAX_TURN_SECONDS = 60.0
"""Seconds after which a turn counts as hanging; the deadline is one."""


def goes_on(number: int, proxy: Misbehaving) -> bool:
    """Return True for the planned number of turns, and on a busy machine until every fault has occurred."""
    return number < TURNS or (
        number < 20 * TURNS and min(proxy.befallen[kind] for kind in FAULTS) < MIN_FAULTS_PER_KIND
    )


class Waits:
    """Measures how long a person waits in each turn, and the machine's own wake-up delays within."""

    def __init__(self) -> None:
        self._waits: list[float] = []
        self._late = 0.0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Measure the machine's wake-up delays while the block runs."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Measure one turn."""
        began = time.monotonic()
        async with asyncio.timeout(MAX_TURN_SECONDS):
            yield
        self._waits.append(time.monotonic() - began)

    def tell(self, proxy: Misbehaving) -> None:
        first, *others = self._waits
        sys.stdout.write(
            f"seed {SEED}: waited {first:.2f} s in the first turn, at most {max(others):.2f} s in the other "
            f"{len(others)}; the machine was up to {self._late:.2f} s late; faults {dict(proxy.befallen)}\n"
        )

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + 0.05
            await asyncio.sleep(0.05)
            self._late = max(self._late, time.monotonic() - due)


@pytest.mark.stress
@pytest.mark.contract("7.5")
async def test_whatever_the_server_does_a_person_waits_no_longer_than_the_deadline(
    recalling: Recalling, proxy: Misbehaving
) -> None:
    recalling.configure(baseUrl=proxy.url)
    recalling.tell("elsewhere", (ANN, "My cat is called Miso."))
    proxy.choose = AtRandom(SEED, 0.7)
    waits = Waits()
    async with recalling.host(DEADLINES) as talk, waits.watching():
        memory = await talk.memory()
        for number in itertools.takewhile(lambda number: goes_on(number, proxy), itertools.count()):
            said = await talk.say(f"Question number {number} about my cat")
            async with waits.turn():
                await memory.recall([said], memory.begin())
            await memory.turn_over()
            memory.after_turn([said])
            if number % HASTY_TURN_INTERVAL:
                await memory.settle()
        proxy.choose = never
        await memory.settle()
        waits.tell(proxy)
        assert min(proxy.befallen[kind] for kind in FAULTS) >= MIN_FAULTS_PER_KIND, proxy.befallen
        talk.provider.deadlines = PATIENT
        await talk.turn("And my dog?")  # what failed last is fetched again beside this turn
        assert "Miso" in await talk.turn("And what is my cat called?")


@pytest.mark.stress
@pytest.mark.contract("7.5")
async def test_every_turn_of_a_conversation_is_answered_whatever_the_server_does(
    recalling: Recalling, proxy: Misbehaving
) -> None:
    recalling.configure(baseUrl=proxy.url)
    recalling.machine.home.mkdir(parents=True, exist_ok=True)
    proxy.choose = AtRandom(SEED, 0.7)
    waits, plugin = Waits(), cast(Recorder, HonchoPlugin)
    seam = open_seam(recalling.machine.home, lambda _: Reply("fine"), plugin, deadlines=DEADLINES)
    async with seam as agent, waits.watching():
        memory = agent.memory
        assert isinstance(memory, Memory)
        for number in itertools.takewhile(lambda number: goes_on(number, proxy), itertools.count()):
            async with waits.turn(), aclosing(run_turn(agent, f"Turn {number}", asyncio.Event())) as events:
                seen = [event async for event in events]
            assert isinstance(seen[-1], Replied)
            if number % HASTY_TURN_INTERVAL:
                await memory.settle()
    waits.tell(proxy)
    assert min(proxy.befallen[kind] for kind in FAULTS) >= MIN_FAULTS_PER_KIND, proxy.befallen
