"""`hermes gateway` as its owner uses it, with real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from hermes.gateway.gateway import ALREADY_RUNS, STATE_WORDS
from tests.db.processes import ROOT
from tests.gateway.asking import ask, body, in_session, reply
from tests.gateway.core import message, running_core
from tests.gateway.processes import (
    GatewayProcess,
    LoopbackModel,
    api_settings,
    echo_model,
    rows,
    wait_until,
    write_config,
)
from tests.plain_http import PLAIN

pytestmark = pytest.mark.processes


def hermes(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "hermes", *arguments],
        cwd=ROOT,
        env={**os.environ, "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_status_stop_and_a_second_gateway(model: LoopbackModel, empty_home: Path) -> None:
    write_config(empty_home, api_settings(model))
    assert hermes(empty_home, "gateway", "status").returncode == 1
    assert hermes(empty_home, "gateway", "stop").stdout == "not running\n"
    with GatewayProcess(empty_home) as gateway:
        reply(ask(gateway.url, "hi", headers=in_session("s")))
        status = hermes(empty_home, "gateway", "status", "--json")
        told = json.loads(status.stdout)
        assert status.returncode == 0
        assert f":{gateway.pid}:" in told["running"]
        shown = hermes(empty_home, "gateway", "status").stdout.splitlines()[0]
        assert shown == f"running, process {gateway.pid}"
        assert [(part["part"], part["state"], part["detail"]) for part in told["parts"]] == [("api", "ok", gateway.url)]
        assert told["queues"]["inbox"]["waiting"] == 0
        assert gateway.url in hermes(empty_home, "gateway", "status").stdout
        second = hermes(empty_home, "gateway", "run")
        assert second.returncode == 1
        assert ALREADY_RUNS in second.stderr
        assert second.stderr.count("\n") == 1, "a gateway that is refused does not say that it runs"
        assert reply(ask(gateway.url, "still there?")) == "echo: still there?"
        assert hermes(empty_home, "gateway", "stop").stdout == "ended\n"
        assert gateway.wait() == 0
    assert hermes(empty_home, "gateway", "status").returncode == 1


def test_gateway_prints_its_address_and_a_killed_one_counts_as_stopped(model: LoopbackModel, empty_home: Path) -> None:
    write_config(empty_home, api_settings(model))
    with GatewayProcess(empty_home) as gateway:
        wait_until(lambda: f"gateway: api {STATE_WORDS['ok']}: {gateway.url}\n" in gateway.output())
        gateway.kill()
        status = hermes(empty_home, "gateway", "status")
        assert (status.returncode, status.stdout.splitlines()[0]) == (1, "not running")
        assert "api" not in status.stdout
        assert json.loads(hermes(empty_home, "gateway", "status", "--json").stdout)["parts"] == []


def test_gateway_without_a_platform_explains_how_to_enable_one(empty_home: Path) -> None:
    done = hermes(empty_home, "gateway", "run")
    assert done.returncode == 2
    assert "api.enabled" in done.stderr


async def test_owner_grants_and_revokes_access(tmp_path: Path) -> None:
    async with running_core(tmp_path, gateway__allow="") as core:
        await core.platform.deliver(message("let me in", author="eve"))
        await core.platform.until(lambda: len(core.platform.sent) == 1)
        [asked] = json.loads(hermes(tmp_path, "gateway", "pair", "--json").stdout)
        assert (asked["user_id"], asked["state"]) == ("eve", "pending")
        paired = hermes(tmp_path, "gateway", "pair", asked["code"].lower())
        assert paired.stdout == "Eve (fake:eve) may talk now, as a guest.\n"
        await core.platform.deliver(message("thanks", author="eve"))
        await core.platform.until(lambda: core.platform.texts("7")[1:] == ["echo: thanks"])
        assert "eve" in hermes(tmp_path, "gateway", "pair").stdout
        assert "may no longer talk" in hermes(tmp_path, "gateway", "pair", "--remove", "fake:eve").stdout
        assert "was not paired" in hermes(tmp_path, "gateway", "pair", "--remove", "fake:eve").stdout
        unknown = hermes(tmp_path, "gateway", "pair", "WRONG")
        assert unknown.returncode == 1
        assert "nobody has the pairing code" in unknown.stderr


@pytest.mark.contract("P1")
def test_shutdown_finishes_running_turns_refuses_new_ones_and_keeps_waiting_ones(empty_home: Path) -> None:
    with echo_model() as model:
        write_config(empty_home, api_settings(model))
        with GatewayProcess(empty_home) as gateway:
            model.hold()
            answers: dict[str, httpx.Response] = {}

            def talk(text: str) -> None:
                answers[text] = ask(gateway.url, text, headers=in_session("s", text))

            talking: list[threading.Thread] = []
            for text in ("running", "waiting"):
                talking.append(threading.Thread(target=talk, args=(text,)))
                talking[-1].start()
                _wait_for(empty_home, "SELECT 1 FROM hermes_queue WHERE key LIKE ?", f'%"{text}"]')
            _wait_for(empty_home, "SELECT 1 FROM messages WHERE content = ?", "running")

            def answer_at_the_end() -> None:
                wait_until(lambda: not _listens(gateway))
                model.go_on()

            talking.append(threading.Thread(target=answer_at_the_end))
            talking[-1].start()
            with httpx.Client(timeout=60, verify=PLAIN) as early:  # a connection that is open before the end begins
                assert early.get(gateway.url.replace("/v1", "/health")).status_code == 200
                gateway.stop()
                with pytest.raises(httpx.TransportError):
                    early.post(f"{gateway.url}/chat/completions", json=body("new"))
            for thread in talking:
                thread.join()
            assert reply(answers["running"]) == "echo: running"
            assert answers["waiting"].status_code == 503
            assert "the message is kept" in answers["waiting"].json()["error"]["message"]
        with GatewayProcess(empty_home) as gateway:
            assert reply(ask(gateway.url, "waiting", headers=in_session("s", "waiting"))) == "echo: waiting"
    stored = rows(empty_home, "SELECT content FROM messages ORDER BY id")
    assert stored == [("running",), ("echo: running",), ("waiting",), ("echo: waiting",)]


def _listens(gateway: GatewayProcess) -> bool:
    place = httpx.URL(gateway.url)
    try:
        socket.create_connection((place.host, place.port or 80), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


def _wait_for(home: Path, query: str, *arguments: object) -> None:
    until = time.monotonic() + 60
    while not rows(home, query, *arguments):
        assert time.monotonic() < until, query
        time.sleep(0.005)


@pytest.mark.contract("P5")
def test_port_in_use_is_reported_at_once_and_served_when_free(empty_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, echo_model() as model:
        port = taken.getsockname()[1]
        write_config(empty_home, api_settings(model, api__port=port))
        gateway = GatewayProcess(empty_home).begin()
        said = gateway.home / "output.txt"
        wait_until(lambda: any(f":{port}" in line and "api.port" in line for line in said.read_text().splitlines()))
        _wait_for(
            empty_home, "SELECT 1 FROM hermes_gateway_status WHERE state = 'failing' AND detail LIKE ?", f"%:{port}%"
        )
        taken.close()
        with gateway.start():
            assert reply(ask(gateway.url, "free now?")) == "echo: free now?"
            gateway.stop()
