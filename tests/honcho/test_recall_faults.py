"""Recall from a Honcho server that misbehaves: a person never waits longer than the deadline and the model, and what is
known is recalled as soon as the server is well again."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import aclosing
from typing import cast

import pytest

from hermes.agent.turn import run_turn
from hermes.events import Replied
from hermes.honcho.plugin import HonchoPlugin
from hermes.llm.events import Reply
from hermes.memory.active import Deadlines
from tests.agent.seam import open_seam
from tests.honcho.misbehaving import FAULTS, AtRandom, Misbehaving, never
from tests.honcho.recalling import ANN, Recalling
from tests.memory.providers import Recorder
from tests.scale import FULL, scale

SEED = random.SystemRandom().randrange(10**9) if FULL else int(os.environ.get("HERMES_SEED", "7"))
DEADLINES = Deadlines(first_turn=1.0, turn=0.5, tool=1.0, compress=0.5, close=1.0, prepare=3.0, deliver=3.0)


def tell(proxy: Misbehaving, waits: list[float]) -> None:
    faults = dict(proxy.befallen)
    sys.stdout.write(f"seed {SEED}: {len(waits)} turns, longest wait {max(waits):.2f} s, faults {faults}\n")


@pytest.mark.stress
@pytest.mark.contract("7.5")
async def test_whatever_the_server_does_a_person_waits_no_longer_than_the_deadline(
    recalling: Recalling, proxy: Misbehaving
) -> None:
    recalling.configure(baseUrl=proxy.url)
    recalling.tell("elsewhere", (ANN, "My cat is called Miso."))
    proxy.choose = AtRandom(SEED, 0.7)
    waits: list[float] = []
    async with recalling.host(DEADLINES) as talk:
        memory = await talk.memory()
        for number in range(scale(25, 500)):
            said = await talk.say(f"Question number {number} about my cat")
            began = time.monotonic()
            async with asyncio.timeout(5):  # a hang guard: the deadline is one second
                await memory.recall([said], memory.begin())
            waits.append(time.monotonic() - began)
            await memory.turn_over()
            memory.after_turn([said])
        proxy.choose = never
        await memory.settle()
        tell(proxy, waits)
        assert "Miso" in await talk.turn("And what is my cat called?")


@pytest.mark.stress
@pytest.mark.contract("7.5")
async def test_every_turn_of_a_conversation_is_answered_whatever_the_server_does(
    recalling: Recalling, proxy: Misbehaving
) -> None:
    recalling.configure(baseUrl=proxy.url)
    recalling.machine.home.mkdir(parents=True, exist_ok=True)
    proxy.choose = AtRandom(SEED, 0.7)
    waits: list[float] = []
    plugin = cast(Recorder, HonchoPlugin)
    async with open_seam(recalling.machine.home, lambda _: Reply("fine"), plugin, deadlines=DEADLINES) as agent:
        for number in range(scale(10, 500)):
            began = time.monotonic()
            async with asyncio.timeout(8), aclosing(run_turn(agent, f"Turn {number}", asyncio.Event())) as events:
                seen = [event async for event in events]  # a hang guard: deadline and model take a second
            waits.append(time.monotonic() - began)
            assert isinstance(seen[-1], Replied)
    tell(proxy, waits)
    assert min(proxy.befallen[kind] for kind in FAULTS) >= scale(0, 10), proxy.befallen
