"""Host and memory server are killed repeatedly during a conversation: every turn arrives once, in order, under the
right peer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import httpx
import pytest

from hermes.cli import outbox
from hermes.embedded.connect import connect, stop
from hermes.embedded.place import Place
from hermes.embedded.rendezvous import read_rendezvous
from hermes.honcho.wire import DeliveryTimeouts
from hermes.memory.deliveries import LEASE_SECONDS
from tests.honcho.configuring import Machine
from tests.honcho.talker import PEERS
from tests.memory_server.serving import ROOT
from tests.plain_http import PLAIN
from tests.scale import FULL, scale

pytestmark = pytest.mark.processes
SEED = random.SystemRandom().randrange(10**9) if FULL else 17
TURNS_AHEAD = 2
"""Turns that a host may be ahead of the reader, so that a slow reader never lets it finish."""


def talker(machine: Machine, turns: int) -> subprocess.Popen[str]:
    env = {**os.environ, "HOME": str(machine.folder), "LOGNAME": "ann", "HERMES_HOME": str(machine.home)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.honcho.talker", str(machine.home), str(turns)],
        cwd=ROOT,
        env={**env, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def hear(host: subprocess.Popen[str], turns: int) -> None:
    """Let a host run more turns, and read them; it runs a few further ones."""
    assert host.stdin is not None
    assert host.stdout is not None
    host.stdin.write("\n" * (TURNS_AHEAD + turns))
    host.stdin.flush()
    for _ in range(turns):
        assert host.stdout.readline()


def kill_server(place: Place, killed: set[str], host: subprocess.Popen[str]) -> None:
    """Kill the server, or the next one that starts while the host lives, and add it to `killed`."""
    while host.poll() is None:
        found = read_rendezvous(place.rendezvous)
        if found is not None and found.start_id not in killed:
            os.kill(found.pid, signal.SIGKILL)
            killed.add(found.start_id)
            return
        time.sleep(0.02)


def read_session(place: Place, session: str) -> list[tuple[str, str]]:
    found = connect(place)
    headers = {"Authorization": f"Bearer {found.api_key}"}
    said: list[tuple[str, str]] = []
    with httpx.Client(base_url=found.base_url, headers=headers, timeout=60, verify=PLAIN) as client:
        for page in range(1, 10**6):
            path = f"/v3/workspaces/lab/sessions/{session}/messages/list?size=100&page={page}"
            told = client.post(path, json={}).raise_for_status().json()
            said += [(one["peer_id"], one["content"]) for one in told["items"]]
            if page >= told["pages"]:
                return said
    raise AssertionError("a list without an end")


@pytest.mark.stress
@pytest.mark.contract("6.1", "6.3", "5.8", "P1")
def test_every_turn_arrives_once_in_order_though_host_and_server_are_killed(machine: Machine) -> None:
    turns, kills = scale(60, 500), scale(3, 20)
    machine.write({"peerName": "ann", "aiPeer": "bot", "workspace": "lab", "server": "embedded"})
    place, chance = Place(machine.home / "memory", machine.home), random.Random(SEED)
    sys.stdout.write(f"seed {SEED}\n")
    hosts, servers = 0, set[str]()
    try:
        for number in range(2 * kills):
            with talker(machine, turns) as host:
                hear(host, chance.randrange(1, turns // (2 * kills) - TURNS_AHEAD))
                if number % 2:
                    kill_server(place, servers, host)
                hosts += host.poll() is None
                host.kill()
        with talker(machine, turns) as host:
            _, wrong = host.communicate(timeout=240)
        assert host.returncode == 0, wrong
        said = read_session(place, "agent-main-telegram-group--100")
    finally:
        stop(place)
    expected = [
        one for turn in range(turns) for one in ((PEERS[turn % len(PEERS)], f"turn {turn}"), ("bot", f"reply {turn}"))
    ]
    sys.stdout.write(f"{len(said)} messages; killed: {hosts} hosts, {len(servers)} servers\n")
    assert said == expected
    assert (hosts, len(servers)) == (2 * kills, kills)


@pytest.mark.contract("6.14")
def test_a_deliverer_lives_until_a_provider_can_see_what_a_killed_process_had_sent() -> None:
    timeouts = DeliveryTimeouts()
    assert LEASE_SECONDS + timeouts.attempt + timeouts.look_after < outbox.STALL_TIMEOUT_SECONDS
