"""SIGKILL of the gateway at any moment: no acknowledged message is lost or answered twice."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import httpx
import pytest

from tests.gateway.asking import ask_async, in_session, reply
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, appears, rows, write_config
from tests.plain_http import PLAIN
from tests.scale import scale

KILLS = scale(4, 200)
LOOP_KILLS = scale(6, 40)
CONVERSATIONS = 24
SEED = 20260101
SESSIONS = 3
MESSAGES_PER_ROUND = 6


@pytest.mark.stress
@pytest.mark.timeout(3000)
@pytest.mark.contract("2.1", "2.2", "2.3", "P1", "P2")
async def test_killed_gateway_loses_no_message_and_repeats_none(model: LoopbackModel, empty_home: Path) -> None:
    chance = random.Random(SEED)
    write_config(empty_home, api_settings(model))
    gateway = GatewayProcess(empty_home)
    acknowledged: dict[str, str] = {}
    sent: dict[str, str] = {}
    kills = 0
    with gateway:
        while kills < KILLS:
            batch = {f"r{kills}-{n}": f"s{chance.randrange(SESSIONS)}" for n in range(MESSAGES_PER_ROUND)}
            sent |= batch
            acknowledged |= await _send_and_kill(gateway, batch, chance.uniform(0.0, 0.35))
            kills += 1
            while chance.random() < 0.25:  # and once more while it starts
                gateway.begin()
                await asyncio.sleep(chance.uniform(0.0, 1.5))
                gateway.kill()
                kills += 1
            gateway.start()
            await _emptied(empty_home)
            await _repeat(gateway, batch)
    _check(empty_home, sent, acknowledged)


async def _send_and_kill(gateway: GatewayProcess, batch: dict[str, str], after: float) -> dict[str, str]:
    """Send a batch and kill the gateway; return the messages answered before."""
    async with httpx.AsyncClient(verify=PLAIN) as client:
        asking = [
            asyncio.create_task(ask_async(client, gateway.url, text, headers=in_session(session, text)))
            for text, session in batch.items()
        ]
        await asyncio.sleep(after)
        gateway.kill()
        answers = await asyncio.gather(*asking, return_exceptions=True)
    answered: dict[str, str] = {}
    for (text, session), answer in zip(batch.items(), answers, strict=True):
        if isinstance(answer, httpx.Response):
            assert reply(answer) == f"echo: {text}"
            answered[text] = session
        else:
            assert isinstance(answer, httpx.TransportError), answer
    return answered


async def _emptied(home: Path) -> None:
    """Wait until the inbox has no waiting items."""
    begun = time.monotonic()
    while rows(home, "SELECT 1 FROM hermes_queue WHERE queue = 'inbox' AND state = 'waiting' LIMIT 1"):
        assert time.monotonic() < begun + 60, "the inbox is stuck"
        await asyncio.sleep(0.01)


async def _repeat(gateway: GatewayProcess, batch: dict[str, str]) -> None:
    """Repeat a request with the same key; it gets the one existing reply."""
    async with httpx.AsyncClient(verify=PLAIN) as client:
        answers = await asyncio.gather(
            *(
                ask_async(client, gateway.url, text, headers=in_session(session, text))
                for text, session in batch.items()
            )
        )
    assert [reply(answer) for answer in answers] == [f"echo: {text}" for text in batch]


def _check(home: Path, sent: dict[str, str], acknowledged: dict[str, str]) -> None:
    assert acknowledged.keys() <= sent.keys()
    stored = rows(home, "SELECT session_id, role, content FROM messages ORDER BY id")
    expected = {(session, "user", text) for text, session in sent.items()}
    expected |= {(session, "assistant", f"echo: {text}") for text, session in sent.items()}
    assert len(stored) == len(set(stored)), "something is stored twice"
    assert set(stored) == expected
    assert rows(home, "SELECT DISTINCT state FROM hermes_queue WHERE queue = 'inbox'") == [("done",)]
    assert rows(home, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.stress
@pytest.mark.timeout(3000)
@pytest.mark.contract("2.1", "P1", "P2")
async def test_messages_in_a_crash_loop_are_all_answered_once(model: LoopbackModel, empty_home: Path) -> None:
    write_config(empty_home, api_settings(model))
    sent = {f"message {number}": f"c{number}" for number in range(CONVERSATIONS)}
    tries = "SELECT coalesce(sum(attempts), 0) FROM hermes_queue WHERE queue = 'inbox'"
    model.hold()
    try:
        with GatewayProcess(empty_home) as gateway:
            async with httpx.AsyncClient(verify=PLAIN) as client:
                asking = [
                    asyncio.create_task(ask_async(client, gateway.url, text, headers=in_session(session, text)))
                    for text, session in sent.items()
                ]
                await appears(empty_home, f"SELECT 1 WHERE ({tries}) = ?", CONVERSATIONS)
                gateway.kill()
                await asyncio.gather(*asking, return_exceptions=True)
            for _ in range(LOOP_KILLS - 1):
                [(before,)] = rows(empty_home, tries)
                gateway.begin()
                await appears(empty_home, f"SELECT 1 WHERE ({tries}) > ?", before)
                gateway.kill()
            model.go_on()
            gateway.start()
            await appears(empty_home, "SELECT 1 WHERE 0 = (SELECT count(*) FROM hermes_queue WHERE state = 'waiting')")
            await _repeat(gateway, sent)
    finally:
        model.go_on()
    _check(empty_home, sent, {})
