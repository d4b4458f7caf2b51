"""A conversation whose token expires repeatedly, during an outage of the token server."""

from __future__ import annotations

import asyncio
import time

import pytest

from hermes.honcho.plugin import HonchoPlugin
from hermes.honcho.renewal import NOT_RENEWED, STILL_RENEWING, RenewalTimings
from hermes.memory.active import ActiveProvider, Surroundings
from hermes.memory.caller import Memory
from hermes.memory.deliveries import Deliveries
from hermes.memory.health import LATE_NOTICE
from hermes.store.store import Store
from tests.honcho.configuring import Machine
from tests.honcho.issuer import Issuer
from tests.honcho.writing import HERE, Arrived
from tests.memory.remembering import begin, reply, say
from tests.memory_server.serving import Served
from tests.scale import scale

TURNS = scale(24, 200)
HOUR_SECONDS = 3_600.0


class QuickPlugin(HonchoPlugin):
    """Retries soon, so that an outage costs seconds instead of minutes."""

    timings = RenewalTimings(request=1.0, retry_after=0.05, total=2.0, pause=0.2)


class JumpingClock:
    """The machine's clock, which a test can advance."""

    ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))


@pytest.mark.processes
@pytest.mark.contract("8.2", "6.4", "P5")
@pytest.mark.timeout(600)
async def test_every_turn_arrives_once_and_an_outage_is_reported_once(
    machine: Machine, server: Served, workspace: str, arrived: Arrived, caplog: pytest.LogCaptureFixture
) -> None:
    clock, told = JumpingClock(), list[str]()
    with Issuer(server.url) as issuer:
        issuer.now = clock.now
        given = {"baseUrl": issuer.url, "workspace": workspace, "peerName": "ann", "aiPeer": "bot", **issuer.grant()}
        machine.write({"hosts": {"hermes": given}})
        env = {"HOME": str(machine.folder), "LOGNAME": "ann"}
        async with await Store.open(machine.home / "state.db", clock=clock, lock_timeout=30.0) as store:
            provider = ActiveProvider("honcho", QuickPlugin, store, Surroundings(machine.home, None, env))
            deliveries = Deliveries(provider, "test", 4)
            deliveries.start()
            memory = await begin(provider, HERE)
            for turn in range(TURNS):
                if turn in (TURNS // 4, TURNS // 2):
                    clock.ahead += HOUR_SECONDS  # the token has ended
                if turn == TURNS // 2:
                    issuer.fault = lambda _: "500"
                if turn == 3 * TURNS // 4:
                    while not told:  # deliveries are put off a few times before it is said
                        clock.ahead += 20.0
                        await asyncio.sleep(0.1)
                        told += outages(memory)
                    issuer.fault = lambda _: None
                deadline = memory.begin()
                message = await say(memory, f"turn {turn}", HERE.session_id)
                await memory.recall([message], deadline)
                await reply(memory, f"reply {turn}", HERE.session_id)
                await memory.turn_over()
                memory.after_turn([message])
                told += outages(memory)
                if turn % (TURNS // 4) == TURNS // 4 - 1 and turn < TURNS // 2:
                    await _all_delivered(deliveries, clock)
            await _all_delivered(deliveries, clock)
            while len(told) < 2:  # the end of the outage is told once every hook that failed has worked again
                clock.ahead += 5.0
                await memory.recall([message], memory.begin())
                memory.after_turn([message])
                await asyncio.sleep(0.1)
                told += outages(memory)
            await deliveries.finish(1.0)
            await memory.close()
            await provider.close()
    said = [line for _, line in arrived.said()]
    assert said == [line for turn in range(TURNS) for line in (f"turn {turn}", f"reply {turn}")]
    assert len(told) == 2, told
    assert any(text in told[0] for text in (NOT_RENEWED, STILL_RENEWING)), "whichever hook is first"
    assert told[1] == "memory provider honcho works again"
    assert issuer.counts["exchanges"] >= 2
    assert issuer.counts["revoked"] == issuer.counts["replays"] == 0
    assert not any(secret in caplog.text for secret in issuer.issued)


def outages(memory: Memory) -> list[str]:
    """Return the notices about outages, without those about a slow machine."""
    return [line for line in memory.take_notices() if line != LATE_NOTICE]


async def _all_delivered(deliveries: Deliveries, clock: JumpingClock) -> None:
    while (await deliveries.left()).entries:
        clock.ahead += 5.0  # pauses pass quickly
        await asyncio.sleep(0.1)
