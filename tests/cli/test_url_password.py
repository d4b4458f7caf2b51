"""A password in the URL of a model is used, and shown nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.chatting import chat, configure, environment, serving
from tests.cli.screen import Screen
from tests.conftest import Ran

pytestmark = pytest.mark.processes

Hermes = Callable[..., Ran]
PASSWORD = "tr0ub4dor"


def hermes_process(home: Path, *arguments: str, **variables: str) -> str:
    """Return everything that a command prints."""
    command = [sys.executable, "-m", "hermes", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(home, **variables), check=False)
    return done.stdout + done.stderr


def check_hidden(home: Path, printed: str) -> None:
    assert PASSWORD not in printed
    for path in home.rglob("*"):
        if path.is_file() and path.name != "config.yaml":
            assert PASSWORD.encode() not in path.read_bytes(), path


@pytest.mark.contract("10.6")
def test_it_is_in_nothing_that_a_person_or_a_log_sees(home: Path) -> None:
    with serving([], then={"echo": True}) as endpoint:
        address = f"bob:{PASSWORD}@127.0.0.1:{endpoint.port}/v1"
        configure(home, f"model:\n  base_url: http://{address}\n  default: loop-1\nlog:\n  level: debug\n")
        assert chat(environment(home), "-q", "hello").out == "hello\n"
        printed = [hermes_process(home, "model"), hermes_process(home, "model", "--json")]
        assert all(f"http://bob:(hidden)@127.0.0.1:{endpoint.port}/v1" in output for output in printed)
    printed += [hermes_process(home, "chat", "-q", "hello"), hermes_process(home, "model")]  # nobody answers now
    for arguments in (["list"], ["list", "--json"], ["get", "model.base_url"]):
        printed.append(hermes_process(home, "config", *arguments))
        assert "bob:(hidden)@127.0.0.1" in printed[-1]
    printed.append(hermes_process(home, "doctor"))
    check_hidden(home, "\n".join(printed))


@pytest.mark.parametrize("url", [f"bob:{PASSWORD}@host/v1", f"htp://bob:{PASSWORD}@host/v1", f"http://bob:{PASSWORD}@"])
def test_a_url_that_cannot_be_used_is_refused_without_it(home: Path, url: str) -> None:
    printed = hermes_process(home, "config", "set", "model.base_url", url)
    assert "model.base_url is " in printed
    assert not (home / "config.yaml").exists()
    configure(home, f"model:\n  base_url: {url}\n")
    printed += "".join(hermes_process(home, *words) for words in (["model"], ["chat", "-q", "x"], ["config", "list"]))
    check_hidden(home, printed)


def test_a_value_in_the_wrong_place_is_said_without_it(home: Path) -> None:
    configure(home, f"display:\n  color: http://bob:{PASSWORD}@host\nagent: http://bob:{PASSWORD}@host\n")
    printed = "".join(hermes_process(home, *words) for words in (["doctor"], ["sessions", "list"], ["config", "list"]))
    assert "display.color is 'http://bob:(hidden)@host'" in printed
    check_hidden(home, printed)


def test_it_is_not_in_the_status_line(home: Path) -> None:
    env = {"OPENAI_BASE_URL": f"http://bob:{PASSWORD}@127.0.0.1:9/v1", "HERMES_HOME": str(home), "PYTHONUTF8": "1"}
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    with Screen("chat", env={**kept, **env}) as screen:
        screen.wait(lambda screen: screen.status.startswith("model not chosen yet "))
    assert PASSWORD.encode() not in screen.raw
