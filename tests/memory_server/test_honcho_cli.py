"""Honcho's own command line, unmodified, signs in to this server and works with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.screen import ENTER, Screen
from tests.memory_server.serving import SECRET, Served, running
from tests.memory_server.signing import consent_form, hidden_fields
from tests.parts import fetch_once

pytestmark = [pytest.mark.processes, pytest.mark.contract("8.5")]
VERSION = "0.3.0"
NEEDED = ("certifi", "click", "honcho-ai==2.7.0", "httpx", "questionary", "rich<16", "typer<0.29")
"""Its dependencies, with an available version of `certifi`: it requires one released on the same day."""
RUN = "import sys; sys.argv[0] = 'honcho'; from honcho_cli.main import app; app()"
PROGRAM = (sys.executable, "-S", "-c", RUN)
"""Starts it with only the packages in its own folders."""


@pytest.fixture(scope="module")
def served(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start a server with short-lived tokens, so that the command line renews them for every command."""
    keys = {"AUTH_USE_AUTH": "true", "AUTH_JWT_SECRET": SECRET, "AUTH_ACCESS_SECONDS": "50"}
    with running(tmp_path_factory.mktemp("short"), **keys) as server:
        yield server


@pytest.fixture
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the environment of the command line; its packages are downloaded once."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    cache = request.config.cache
    itself = fetch_once(cache, f"honcho-cli-{VERSION}", [*pip, "--no-deps", f"honcho-cli=={VERSION}"], "--target")
    needed = fetch_once(cache, f"honcho-cli-{VERSION}-needs", [*pip, *NEEDED], "--target")
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(itself), str(needed)]),
        "HOME": str(tmp_path),
        "HONCHO_CONFIG_DIR": str(tmp_path / "honcho"),
        "BROWSER": "true",  # a command that opens nothing
        "HONCHO_NO_UPDATE_CHECK": "1",
    }


def ask(env: Mapping[str, str], *arguments: str) -> Any:
    """Run a command and return its JSON output."""
    command: Sequence[str] = [*PROGRAM, *arguments, "--json"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def test_honcho_cli_signs_in_by_device_and_its_commands_work(
    served: Served, env: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "honcho" / "config.json"
    with Screen("init", "--base-url", served.url, env=env, program=PROGRAM) as screen, served.client() as browser:
        screen.wait_for("Honcho URL").type(ENTER)
        screen.wait_for("Log in with your browser").wait_for("Choice").type(f"1{ENTER}")
        screen.wait_for("Waiting for approval")
        shown = re.search(r"to authorize: (\S+)", "\n".join(screen.rows))
        assert shown
        page = browser.get("/device").text
        own = {"Origin": served.url}
        page = browser.post("/device", data={**hidden_fields(page), "user_code": shown[1]}, headers=own).text
        allowed = browser.post("/authorize", data=consent_form(page, workspace="cli"), headers=own)
        assert "Allowed" in allowed.text
        screen.wait_for("Connected")
        assert screen.ended() == 0
    first = json.loads(config.read_text())["oauth"]
    assert first["accessToken"].startswith("hch-at-")
    inside = ("-w", "cli")
    assert ask(env, "workspace", "list") == [{"id": "cli"}]
    ask(env, "session", "create", "talk", "--peers", "nina", *inside)
    ask(env, "message", "create", "My cat is called Pixel.", "-p", "nina", "-s", "talk", *inside)
    [message] = ask(env, "message", "list", "talk", *inside)
    assert message["content"] == "My cat is called Pixel."
    checks = ask({**env, "HONCHO_WORKSPACE_ID": "cli", "HONCHO_PEER_ID": "nina"}, "doctor")
    assert checks["passed"] == checks["total"]
    assert json.loads(config.read_text())["oauth"]["refreshToken"] != first["refreshToken"]
