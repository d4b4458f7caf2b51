"""`hermes gateway install`: the unit file that is written, and the system commands that run."""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.cli.gateway_service import find_service
from hermes.clock import SystemClock
from tests.gateway.core import load_app

SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$ASKED"
exit "${SYSTEMCTL_FAILS:-0}"
"""


class Machine:
    """A HOME folder with a fake `systemctl` that records its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked_file = folder, folder / "asked"
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "systemctl"
        program.write_text(SYSTEMCTL)
        program.chmod(0o755)

    def hermes(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HOME": str(self.folder), "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", **more}
        env = {name: value for name, value in env.items() if name not in ("HERMES_HOME", "XDG_CONFIG_HOME")}
        command = [sys.executable, "-m", "hermes", *arguments]
        env["ASKED"] = str(self.asked_file)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    @property
    def asked(self) -> list[str]:
        return self.asked_file.read_text().splitlines() if self.asked_file.exists() else []

    @property
    def units(self) -> Path:
        return self.folder / ".config" / "systemd" / "user"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "it's 100% a home")


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_install_writes_a_unit_that_runs_the_gateway_and_uninstall_removes_it(machine: Machine) -> None:
    done = machine.hermes("gateway", "install")
    assert done.returncode == 0, done.stderr
    assert machine.asked == [f"--user {what}" for what in (
        "daemon-reload", "enable hermes-gateway.service", "restart hermes-gateway.service",
    )]  # fmt: skip
    unit = (machine.units / "hermes-gateway.service").read_text()
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    started = shlex.split(command.replace("%%", "%").replace("$$", "$"))
    ran = subprocess.run([*started[:3], "--version"], capture_output=True, text=True, check=False)
    assert (started[3:], ran.returncode) == (["gateway", "run"], 0)
    assert f"HERMES_HOME={machine.folder}/.hermes".replace("%", "%%") in unit
    assert machine.hermes("gateway", "uninstall").returncode == 0
    assert machine.asked[-1] == "--user disable --now hermes-gateway.service"
    assert not (machine.units / "hermes-gateway.service").exists()
    assert "not installed" in machine.hermes("gateway", "uninstall").stdout


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_profiles_are_instances_of_one_template(machine: Machine) -> None:
    assert machine.hermes("profiles", "create", "coder").returncode == 0
    done = machine.hermes("-p", "coder", "gateway", "install")
    assert done.returncode == 0, done.stderr
    assert machine.asked[-1] == "--user restart hermes-gateway@coder.service"
    assert '"-p" %i "gateway" "run"' in (machine.units / "hermes-gateway@.service").read_text()
    machine.hermes("-p", "coder", "gateway", "uninstall")
    assert (machine.units / "hermes-gateway@.service").exists(), "other profiles may use it"


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_failing_system_is_said_with_its_reason(machine: Machine) -> None:
    done = machine.hermes("gateway", "install", SYSTEMCTL_FAILS="1")
    assert done.returncode != 0
    assert "systemctl --user daemon-reload" in done.stderr
    (machine.folder / "bin" / "systemctl").unlink()
    by_hand = machine.hermes("gateway", "install", PATH=str(machine.folder / "bin"))
    assert by_hand.returncode == 0, by_hand.stderr
    assert "systemctl --user enable hermes-gateway.service" in by_hand.stdout


def test_launchd_agent_runs_the_gateway_of_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    service = find_service(load_app(tmp_path / "home", SystemClock()))
    agent = plistlib.loads(service.text.encode())
    assert agent["ProgramArguments"] == [sys.executable, "-m", "hermes", "gateway", "run"]
    assert agent["EnvironmentVariables"] == {"HERMES_HOME": str(tmp_path / "home")}
    assert service.file.parent == Path.home() / "Library" / "LaunchAgents"
