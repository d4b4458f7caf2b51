"""`hermes gateway install` and `uninstall`: the gateway as a service of the user.

Linux: a systemd user unit, for named profiles an instance of one template. macOS: a launchd agent.
"""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Literal

import typer
from msgspec import Struct

from hermes.app import App
from hermes.cli.output import say
from hermes.cli.start import load_app
from hermes.errors import HomeError, UsageError
from hermes.files import replace_file
from hermes.home import default_home

NAME = "hermes-gateway"
STOP_TIMEOUT_SECONDS = 60
RESTART_SECONDS = 5
HASH_CHARS = 8
UNIT = """[Unit]
Description={about}

[Service]
ExecStart={command}
Environment={home}
Restart=on-failure
RestartSec={restart}
TimeoutStopSec={stop}

[Install]
WantedBy=default.target
"""
ON_WINDOWS = (
    'Make a task at log-on with the Task Scheduler: schtasks /Create /SC ONLOGON /TN {name} /TR "{command}" ; '
    "`schtasks /Delete /TN {name}` removes it"
)


class Service(Struct, frozen=True):
    """The service of one profile. Several profiles may share `file`; `name` is the name systemd or launchd uses."""

    system: Literal["systemd", "launchd"]
    name: str
    file: Path
    text: str

    def start(self) -> list[list[str]]:
        """Return the commands that start the service now and at every boot or login."""
        if self.system == "launchd":
            return [["launchctl", "load", "-w", str(self.file)]]
        systemctl = ["systemctl", "--user"]
        # restart: a running service picks up the new file
        return [
            [*systemctl, "daemon-reload"],
            [*systemctl, "enable", self.name],
            [*systemctl, "restart", self.name],
        ]

    def stop(self) -> list[list[str]]:
        """Return the commands that stop the service and disable it."""
        if self.system == "launchd":
            return [["launchctl", "unload", "-w", str(self.file)]]
        return [["systemctl", "--user", "disable", "--now", self.name]]


def install_service(ctx: typer.Context) -> None:
    """Run this profile's gateway as a service that starts with the machine: a systemd user unit, or a launchd agent."""
    app = load_app(ctx)
    service = find_service(app)
    service.file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(service.file, service.text)
    say(f"wrote {service.file}")
    if service.system == "launchd":
        _run(service.stop(), may_fail=True)  # an older one is replaced
    if not _run(service.start()):
        return
    say(f"started {service.name}; `hermes gateway status` shows its state")
    if service.system == "systemd":
        say(f"its output: journalctl --user -u {service.name}")
        say("to have it run while you are not logged in: loginctl enable-linger")


def uninstall_service(ctx: typer.Context) -> None:
    """Stop and remove this profile's service. Conversations and settings stay."""
    service = find_service(load_app(ctx))
    if not service.file.exists():
        say(f"not installed: there is no {service.file}")
        return
    _run(service.stop(), may_fail=True)
    if "@" in service.name:
        say(f"{service.name} no longer starts; the template {service.file} stays for other profiles")
        return
    service.file.unlink()
    say(f"removed {service.file}")


def find_service(app: App) -> Service:
    """Return the service of a profile on this machine. Raises UsageError on systems without services."""
    profile, root = app.home.profile, app.home.shared
    suffix = "" if root == default_home({"HOME": os.path.expanduser("~")}) else f"-{_digest(root)}"  # noqa: PTH111
    command = [sys.executable, "-m", "hermes", *(["-p", profile] if profile else []), "gateway", "run"]
    if sys.platform == "darwin":
        name = f"local.{NAME}{suffix}{'.' + profile if profile else ''}"
        file = Path.home() / "Library" / "LaunchAgents" / f"{name}.plist"
        return Service("launchd", name, file, _plist(name, command, root))
    if sys.platform == "win32":
        line = subprocess.list2cmdline(command)
        raise UsageError("services are not installed on Windows", hint=ON_WINDOWS.format(name=NAME, command=line))
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    unit, about = f"{NAME}{suffix}", "The gateway of hermes"
    if profile:
        unit, about = f"{unit}@", "The gateway of hermes, profile %i"
        command[command.index(profile)] = "\0"
    text = UNIT.format(
        about=about,
        command=" ".join(_quote(part) for part in command).replace(_quote("\0"), "%i"),
        home=_quote(f"HERMES_HOME={root}"),
        restart=RESTART_SECONDS,
        stop=STOP_TIMEOUT_SECONDS,
    )
    return Service("systemd", f"{unit}{profile or ''}.service", folder / f"{unit}.service", text)


def _plist(name: str, command: list[str], root: Path) -> str:
    log = root / "logs" / "gateway-service.log"
    agent = {
        "Label": name,
        "ProgramArguments": command,
        "EnvironmentVariables": {"HERMES_HOME": str(root)},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": str(log),
        "ExitTimeOut": STOP_TIMEOUT_SECONDS,
    }
    return plistlib.dumps(agent).decode()


def _quote(part: str) -> str:
    """Return a word quoted for a systemd unit."""
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _digest(root: Path) -> str:
    return sha256(str(root).encode()).hexdigest()[:HASH_CHARS]


def _run(commands: list[list[str]], *, may_fail: bool = False) -> bool:
    """Run commands in order. If the program is missing, print what to run by hand and return False."""
    if shutil.which(commands[0][0]) is None:
        say(f"{commands[0][0]} is not installed; install it, then run: {' && '.join(map(' '.join, commands))}")
        return False
    for command in commands:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode and not may_fail:
            reason = (ran.stderr or ran.stdout).strip().splitlines()
            raise HomeError(
                f"`{' '.join(command)}` failed: {reason[-1] if reason else f'exit code {ran.returncode}'}",
                hint="The file is written. Without a user session (container, su), run `hermes gateway run` instead",
            )
    return True
