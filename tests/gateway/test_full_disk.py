"""A gateway with a full disk: reported once, messages refused at once, shown in the status, and recovered by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from hermes.gateway.notices import UNWRITABLE, WRITABLE_AGAIN
from hermes.sqlite.database import GONE
from tests.db.processes import ROOT
from tests.gateway.asking import ask, in_session, reply
from tests.gateway.processes import GatewayProcess, api_settings, clean_env, echo_model, wait_until, write_config
from tests.plain_http import PLAIN
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.processes


def hermes(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hermes", *arguments],
        cwd=ROOT,
        env=clean_env(HERMES_HOME=str(home)),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.contract("P1", "P5")
def test_full_disk_is_reported_once_refuses_messages_and_recovers_by_itself(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"), echo_model() as model, ThreadPoolExecutor(8) as pool:
        home = tmp_path / "disk" / "home"
        log = tmp_path / "agent.log"
        (home / "logs").mkdir(parents=True)
        log.touch()
        (home / "logs" / "agent.log").symlink_to(log)
        write_config(home, api_settings(model))
        with GatewayProcess(home) as gateway:
            health = gateway.url.replace("/v1", "/health")
            assert reply(ask(gateway.url, "hello", headers=in_session("s", "first"))) == "echo: hello"
            long = "x" * 100_000
            model.hold()
            accepted = [
                pool.submit(ask, gateway.url, f"{number} {long}", headers=in_session(f"s{number}", "last"))
                for number in range(3)
            ]
            wait_until(lambda: len(model.requests()) == 4)
            fill(tmp_path / "disk" / "ballast")
            model.go_on()
            for waiting in accepted:
                assert waiting.result(timeout=60).status_code == 503
                assert waiting.result().headers["x-should-retry"] == "false"
            for number in range(20):
                assert ask(gateway.url, f"{number}", headers=in_session("s")).status_code == 503
            told = httpx.get(health, timeout=60, verify=PLAIN)
            assert (told.status_code, told.json()["status"]) == (503, "failing")
            shown = hermes(home, "gateway", "status", "--json")
            [store] = [part for part in json.loads(shown.stdout)["parts"] if part["part"] == "store"]
            assert store["state"] == "failing"
            assert "No space left" in store["detail"]
            looked = hermes(home, "doctor")
            assert looked.returncode == 1
            assert "nothing can be written" in looked.stdout
            lines = [line for line in log.read_text().splitlines() if " ERROR" in line or " WARNING" in line]
            assert len([line for line in lines if UNWRITABLE in line]) == 1
            assert len(lines) <= 4, "one more for each turn that was under way, and none as time goes by"

            (tmp_path / "disk" / "ballast").unlink()
            wait_until(lambda: httpx.get(health, timeout=60, verify=PLAIN).status_code == 200)
            assert reply(ask(gateway.url, "again", headers=in_session("s"))) == "echo: again"
            for number in range(3):
                answer = ask(gateway.url, f"{number} {long}", headers=in_session(f"s{number}", "last"))
                assert reply(answer).startswith(f"echo: {number} ")
            assert log.read_text().count(WRITABLE_AGAIN) == 1
            assert len(gateway.said()) == 5, "what was refused was not taken, and nothing was said twice"
            gateway.stop()


@pytest.mark.contract("P1")
def test_deleted_store_ends_the_gateway_without_acknowledgements(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with echo_model() as model:
        write_config(home, api_settings(model))
        with GatewayProcess(home) as gateway:
            assert reply(ask(gateway.url, "hello", headers=in_session("s"))) == "echo: hello"
            for file in home.glob("state.db*"):
                file.unlink()
            with suppress(httpx.TransportError):  # it may have seen it by itself, and be gone
                assert ask(gateway.url, "into nowhere", headers=in_session("s")).status_code == 503
            assert gateway.wait() == 1
            assert GONE in (home / "output.txt").read_text()
            assert "Traceback" not in (home / "output.txt").read_text()
