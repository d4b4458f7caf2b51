"""`/undo` and `/retry` with a gateway: beside a terminal on the same session, and killed at any moment."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from tests.cli.chatting import chat, environment
from tests.gateway.asking import ask, ask_async, in_session, reply
from tests.gateway.processes import GatewayProcess, LoopbackModel, api_settings, rows, write_config
from tests.plain_http import PLAIN
from tests.scale import scale

pytestmark = pytest.mark.processes
KILLS = scale(4, 100)
SEED = 20261116
LIVE = "SELECT role, content FROM messages WHERE active = 1 ORDER BY id"


@pytest.mark.contract("10.25")
def test_message_undone_in_a_terminal_is_gone_in_a_running_gateway(model: LoopbackModel, empty_home: Path) -> None:
    write_config(empty_home, api_settings(model))
    with GatewayProcess(empty_home) as gateway:
        for text in ("stamps", "figs"):
            assert reply(ask(gateway.url, text, headers=in_session("s"))) == f"echo: {text}"
        ran = chat(environment(empty_home), "-s", "s", said="/undo\n")
        assert (ran.code, "Took back the last turn (2 messages)" in ran.err) == (0, True), ran.err
        ask(gateway.url, "tulips", headers=in_session("s"))
        assert model.asked()[-1] == ["stamps", "tulips"]


@pytest.mark.stress
@pytest.mark.timeout(3000)
@pytest.mark.contract("10.25", "10.26", "P1", "P2")
@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_command_repeated_after_a_kill_has_one_effect(
    model: LoopbackModel, empty_home: Path, command: str
) -> None:
    chance = random.Random(SEED)
    write_config(empty_home, api_settings(model))
    kept: list[str] = []
    with GatewayProcess(empty_home) as gateway:
        for number in range(KILLS):
            for text in (f"kept {number}", f"last {number}"):
                assert reply(ask(gateway.url, text, headers=in_session("s"))) == f"echo: {text}"
            await _give_and_kill(gateway, command, f"c{number}", chance.uniform(0.0, 0.1))
            gateway.start()
            answer = reply(ask(gateway.url, command, headers=in_session("s", f"c{number}")))
            begins = "Took back the last turn (2 messages)" if command == "/undo" else f"echo: last {number}"
            assert answer.startswith(begins)
            kept += [f"kept {number}"] if command == "/undo" else [f"kept {number}", f"last {number}"]
            live = [(role, text) for said in kept for role, text in (("user", said), ("assistant", f"echo: {said}"))]
            assert rows(empty_home, LIVE) == live
    said = KILLS * 4 + (KILLS if command == "/retry" else 0)
    assert rows(empty_home, "SELECT count(*) FROM messages") == [(said,)], "no row is lost or written twice"


async def _give_and_kill(gateway: GatewayProcess, command: str, key: str, after: float) -> None:
    async with httpx.AsyncClient(verify=PLAIN) as client:
        asking = asyncio.create_task(ask_async(client, gateway.url, command, headers=in_session("s", key)))
        await asyncio.sleep(after)
        gateway.kill()
        await asyncio.gather(asking, return_exceptions=True)
