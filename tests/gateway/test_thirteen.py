"""Thirteen agents on one machine, all of which repeatedly cross the compression threshold."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from hermes.clock import SystemClock
from hermes.store.store import Store
from tests.compression.checks import check_lines, check_one_at_a_time, check_store, read_lines
from tests.db.processes import ROOT
from tests.gateway.asking import ask_async, in_session, reply
from tests.gateway.processes import GatewayProcess, api_settings, echo_model, rows, write_config
from tests.plain_http import PLAIN
from tests.scale import scale

pytestmark = pytest.mark.processes

SECONDS = scale(3, 60)
MIN_TURNS = 10
"""Turns of each agent at least: enough for two compressions."""
PROFILES = tuple(f"agent{number}" for number in range(6))
CHATS = tuple(f"chat{number}" for number in range(7))
PADDING = "stamps from Malta and from Gozo " * 40
Said = dict[str, list[str]]


class Clockwork:
    """Lets every agent speak until the time is over and it has spoken often enough."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SECONDS

    def goes_on(self, turns: int) -> bool:
        return turns < MIN_TURNS or time.monotonic() < self._until


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.contract("1.6", "3.10", "P1", "P2", "P3")
async def test_thirteen_compressing_agents_lose_reorder_and_repeat_nothing(empty_home: Path) -> None:
    with ExitStack() as stack:
        model = stack.enter_context(echo_model())
        settings = api_settings(model, model__context_length=8000)
        write_config(empty_home, settings)
        homes = {profile: empty_home / "profiles" / profile for profile in PROFILES}
        for home in homes.values():
            write_config(home, settings)
        gateways = {name: GatewayProcess(home, profile=name).begin() for name, home in homes.items()}
        for gateway in gateways.values():
            stack.enter_context(gateway)
        over_http, in_terminals = await _talk(empty_home, gateways)
        for gateway in gateways.values():
            gateway.stop()
    for name, home in homes.items():
        await _check_home(home, over_http[name])
    await _check_home(empty_home, in_terminals)
    for arguments in ([], *(["-p", name] for name in PROFILES)):
        await _check_doctor(empty_home, arguments)


async def _talk(home: Path, gateways: dict[str, GatewayProcess]) -> tuple[dict[str, Said], Said]:
    """Let all speak at the same time; return their messages by place."""
    clockwork = Clockwork()
    said: dict[str, Said] = {name: {f"{name}-a": [], f"{name}-b": []} for name in gateways}
    first, second = (list(gateways)[place] for place in (0, 1))
    async with httpx.AsyncClient(verify=PLAIN) as client, asyncio.TaskGroup() as group:
        for name, gateway in gateways.items():
            for session in (f"{name}-a", *((f"{name}-b",) if name not in (first, second) else ())):
                group.create_task(_talk_over_http(client, gateway, session, said[name][session], clockwork))
        ends = [(gateways[name], f"{name}-b", said[name][f"{name}-b"]) for name in (first, second)]
        group.create_task(_acknowledge_each_other(client, ends, clockwork))
        chats = [group.create_task(_talk_in_a_terminal(home, name, clockwork)) for name in CHATS]
    return said, dict(chat.result() for chat in chats)


async def _say(client: httpx.AsyncClient, gateway: GatewayProcess, session: str, said: list[str], text: str) -> None:
    answer = await ask_async(client, gateway.url, text, headers=in_session(session, text.partition(" stamps")[0]))
    assert reply(answer) == f"echo: {text}"
    assert answer.headers["x-hermes-session-id"] == session
    said += [text, f"echo: {text}"]


async def _talk_over_http(
    client: httpx.AsyncClient, gateway: GatewayProcess, session: str, said: list[str], clockwork: Clockwork
) -> None:
    while clockwork.goes_on(len(said) // 2):
        await _say(client, gateway, session, said, f"{session} {len(said) // 2} {PADDING}".strip())


async def _acknowledge_each_other(
    client: httpx.AsyncClient, ends: list[tuple[GatewayProcess, str, list[str]]], clockwork: Clockwork
) -> None:
    """Relay each agent's message to the other, which acknowledges it. Only the test carries messages between them."""
    number = 0
    while clockwork.goes_on(number):
        for gateway, session, said in ends:
            await _say(client, gateway, session, said, f"{session} acknowledges {number} {PADDING}".strip())
        number += 1


async def _talk_in_a_terminal(home: Path, name: str, clockwork: Clockwork) -> tuple[str, list[str]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes", "chat"),
        cwd=ROOT,
        env={**os.environ, "HERMES_HOME": str(home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[str] = []
    while clockwork.goes_on(len(said) // 2):
        text = f"{name} {len(said) // 2} {PADDING}".strip()
        process.stdin.write(f"{text}\n".encode())
        assert (await process.stdout.readline()).decode() == f"echo: {text}\n"
        said += [text, f"echo: {text}"]
    process.stdin.close()
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    [(session,)] = rows(home, "SELECT DISTINCT session_id FROM messages WHERE content = ?", said[0])
    return str(session), said


async def _check_home(home: Path, said: Said) -> None:
    lines = read_lines("".join(log.read_text(encoding="utf-8") for log in (home / "logs").glob("agent.log*")))
    assert check_lines(lines) == []
    assert check_one_at_a_time(lines) == []
    async with await Store.open(home / "state.db", clock=SystemClock(), lock_timeout=30.0) as store:
        assert await check_store(store, said, lines) == []
    compressed = rows(home, "SELECT session_id FROM hermes_compressions WHERE epoch > 1")
    assert {row[0] for row in compressed} == set(said), "every session was compressed more than once"
    waiting = rows(home, "SELECT count(*) FROM hermes_queue WHERE state <> 'done'")
    assert waiting == [(0,)]


async def _check_doctor(home: Path, arguments: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes", *arguments, "doctor", "--json"),
        cwd=ROOT,
        env={**os.environ, "HERMES_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    findings = json.loads(told)["findings"]
    wrong = [finding for finding in findings if finding["level"] != "ok"]
    assert [finding for finding in wrong if finding["check"] != "model"] == [], "the model has ended before"
