"""Recall from a Honcho server that misbehaves: a person never waits longer than the deadline and the model, and what is
known is recalled as soon as the server is well again."""

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
HASTE = 4
"""In every fourth turn nobody waits for what is prepared: a person who answers at once."""
TURNS, EACH = scale(12, 500), scale(1, 50)
GUARD = 60.0
"""Seconds of a turn that hangs. The deadline is one."""


def goes_on(number: int, proxy: Misbehaving) -> bool:
    """Whether there is another turn: there are so many, and more on a machine too busy to have met with every fault."""
    return number < TURNS or (number < 20 * TURNS and min(proxy.befallen[kind] for kind in FAULTS) < EACH)


class Waits:
    """How long a person waited, turn by turn; and how late the machine let anyone wake, which is part of it."""

    def __init__(self) -> None:
        self._waits: list[float] = []
        self._late = 0.0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look at how late the machine is for the length of a block."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One turn."""
        began = time.monotonic()
        async with asyncio.timeout(GUARD):
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
            if number % HASTE:
                await memory.settle()
        proxy.choose = never
        await memory.settle()
        waits.tell(proxy)
        assert min(proxy.befallen[kind] for kind in FAULTS) >= EACH, proxy.befallen
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
            if number % HASTE:
                await memory.settle()
    waits.tell(proxy)
    assert min(proxy.befallen[kind] for kind in FAULTS) >= EACH, proxy.befallen
