"""The command line as a whole: versions, profiles, and bad input that ends in one clear line."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes import __version__
from hermes.cli.main import run
from tests.cli.filling import fill
from tests.conftest import Ran

Hermes = Callable[..., Ran]


def one_line(ran: Ran) -> str:
    """Return the error line: exactly one line, no traceback, empty standard output."""
    assert ran.code != 0
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    return ran.err


@pytest.mark.processes
def test_version_is_printed_by_the_real_command() -> None:
    done = subprocess.run([sys.executable, "-m", "hermes", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"hermes {__version__}\n"


def test_help_and_unknown_commands_are_told_apart(hermes: Hermes) -> None:
    assert hermes("--help").code == 0
    assert "`hermes sessions --help`" in one_line(hermes("sessions", "frobnicate"))
    assert "--frob" in one_line(hermes("sessions", "list", "--frob"))


@pytest.mark.contract("10.6")
def test_model_says_which_kinds_it_can_use(hermes: Hermes) -> None:
    kinds = ("ollama", "lm-studio", "llama.cpp")
    assert all(kind in hermes("model", "--help").out for kind in kinds)
    assert all(kind in one_line(hermes("model", "--use", "nonsense")) for kind in kinds)
    assert "`hermes model --help`" in one_line(hermes("model", "--use"))
    assert "no model is configured" in one_line(hermes("model", "qwen"))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/sesions", "hermes: there is no command /sesions (did you mean /sessions?). `/help` lists them"),
        ("/resume", "hermes: which session? `/sessions` lists them"),
    ],
)
def test_a_mistyped_command_says_what_may_be_meant(home: Path, typed: str, said: str) -> None:
    command = [sys.executable, "-m", "hermes", "chat"]
    done = subprocess.run(command, input=f"{typed}\n", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.processes
def test_asking_a_model_loads_nothing_to_draw_with(home: Path) -> None:
    script = "import sys, hermes.llm.connection, httpx; sys.exit('rich' in sys.modules or 'click' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.processes
def test_serving_memory_loads_no_client_of_http(home: Path) -> None:
    script = "import sys, hermes.cli.memory_serving; sys.exit('httpx' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_profile_may_be_called_like_a_command(hermes: Hermes, home: Path) -> None:
    for name in ("chat", "doctor"):
        assert hermes("profiles", "create", name).code == 0
    assert hermes("-p", "chat", "config", "path").out.strip() == str(home / "profiles" / "chat" / "config.yaml")
    assert hermes("--profile=doctor", "config", "path").code == 0


@pytest.mark.contract("10.1")
def test_profiles_have_homes_of_their_own(hermes: Hermes, home: Path) -> None:
    fill(home / "profiles" / "coder", "code talk")
    assert "code talk" in hermes("-p", "coder", "sessions", "list").out
    assert "code talk" not in hermes("sessions", "list").out
    assert hermes("-p", "coder", "config", "path").out.strip() == str(home / "profiles" / "coder" / "config.yaml")
    assert "'../x'" in one_line(hermes("-p", "../x", "sessions", "list"))


@pytest.mark.contract("10.6")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("store:\n  lock_timeout: soon\n", ["config.yaml, line 2", "'soon'", "number from 0.1 to 600"]),
        ("store: [1, 2\n", ["config.yaml, line"]),
        ("just words\n", ["must hold settings"]),
    ],
)
def test_a_wrong_configuration_is_one_line_that_names_file_key_and_what_is_allowed(
    hermes: Hermes, home: Path, text: str, wanted: list[str]
) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(text)
    line = one_line(hermes("sessions", "list"))
    for part in wanted:
        assert part in line
    assert (home / "config.yaml").read_text() == text
    assert not (home / "state.db").exists()
    doctor = hermes("doctor", "--json")
    assert doctor.code == 1
    assert any(finding["level"] == "fail" for finding in json.loads(doctor.out)["findings"])


@pytest.mark.contract("10.6")
def test_a_file_that_is_no_database_is_left_alone(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "state.db").write_bytes(b"this is not a database, it only looks like a file" * 100)
    before = (home / "state.db").read_bytes()
    assert "is not a database" in one_line(hermes("sessions", "list"))
    assert (home / "state.db").read_bytes() == before
    doctor = hermes("doctor")
    assert doctor.code == 1
    assert "FAIL  store" in doctor.out
    assert (home / "state.db").read_bytes() == before


@pytest.mark.contract("1.6", "10.6")
def test_a_locked_store_is_one_line_that_says_what_to_do(
    hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = fill(home, "x")
    monkeypatch.setenv("HERMES_LOCK_TIMEOUT", "0.2")
    blocker = sqlite3.connect(home / "state.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    assert "locked by another process. Try again" in one_line(hermes("sessions", "title", session, "T"))
    blocker.execute("ROLLBACK")
    blocker.close()
    assert hermes("sessions", "title", session, "T").code == 0


@pytest.mark.contract("10.6")
def test_a_home_that_cannot_be_made_is_one_line_that_names_it(
    hermes: Hermes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "file" / "home"))
    assert str(tmp_path / "file" / "home") in one_line(hermes("sessions", "list"))


@pytest.mark.processes
@pytest.mark.contract("10.6")
def test_a_home_that_may_not_be_read_is_one_line_that_names_it() -> None:
    """The child gives up root's rights first, since no permission stops root."""
    code = (
        "import os, sys, hermes.cli.main\n"
        "hermes.cli.main.run(['config', 'path'])\n"  # everything is imported while it may still be read
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(hermes.cli.main.run(['sessions', 'list']))"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        locked = Path(folder) / "home"
        locked.mkdir(mode=0o000)
        env = {**os.environ, "HERMES_HOME": str(locked)}
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 2, done.stderr
        assert str(locked) in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_defect_is_one_line_and_the_place_only_on_request(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("hermes.cli.doctor.examine", explode)
    assert run(["doctor"]) == 70
    assert "this is a defect: RuntimeError: boom" in capsys.readouterr().err


@pytest.mark.processes
def test_output_into_a_closed_pipe_ends_quietly(home: Path) -> None:
    fill(home, *[f"message {n} " + "x" * 2000 for n in range(200)])
    env = {**os.environ, "HERMES_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-m", "hermes", "sessions", "export", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["type"] == "session"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
