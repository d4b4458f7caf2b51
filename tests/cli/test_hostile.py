"""Hostile and unlucky input; each case was once a defect."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.chatting import environment, serving
from tests.cli.filling import fill
from tests.conftest import Ran

Hermes = Callable[..., Ran]


def hermes_process(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HERMES_HOME": str(home), **variables}
    return subprocess.run(
        [sys.executable, "-m", "hermes", *arguments], capture_output=True, text=True, env=env, check=False
    )


@pytest.mark.processes
@pytest.mark.contract("P1")
def test_settings_that_are_set_at_the_same_moment_are_all_kept(home: Path, hermes: Hermes) -> None:
    wanted = {"agent.name": "a", "agent.tools_off": "b", "gateway.allow": "c", "model.default": "d"}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: hermes_process(home, "config", "set", *pair), wanted.items()))
    for name, value in wanted.items():
        assert hermes("config", "get", name).out == f"{value}\n"


def test_a_failed_export_leaves_the_file_that_was_there(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    session, target = fill(home, "stamps"), tmp_path / "out.jsonl"
    assert hermes("sessions", "export", session, "-o", str(target)).code == 0
    before = target.read_bytes()
    assert hermes("sessions", "export", session, "nope", "-f", "-o", str(target)).code == 1
    assert target.read_bytes() == before
    assert hermes("sessions", "export", "nope", "-o", str(tmp_path / "new.jsonl")).code == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "home") == ["out.jsonl"]


def test_a_key_given_twice_is_said_without_its_values(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("model:\n  api_key: sk-secret-1\n  api_key: sk-secret-2\n")
    ran = hermes("sessions", "list")
    assert ran.code == 2
    assert "api_key" in ran.err
    assert "sk-secret" not in ran.err


def test_settings_are_listed_also_when_the_file_is_wrong(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("toolsets: [a]\nagent:\n  max_steps: many\n  name: bob\n")
    ran = hermes("config", "list")
    assert ran.code == 0
    assert "toolsets" in ran.err
    assert "agent.max_steps" in ran.err
    assert "bob" in ran.out


def test_a_line_of_env_that_is_no_assignment_is_named(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text("A=1\nOPENAI_API_KEY sk-secret-1\n")
    ran = hermes("sessions", "list")
    assert ran.code == 2
    assert ".env, line 2" in ran.err
    assert "sk-secret" not in ran.err


@pytest.mark.parametrize("odd", [1772000000000, "2026-01-01T10:00:00", 9e18, -5, "soon"])
def test_one_odd_time_does_not_hide_the_other_sessions(hermes: Hermes, home: Path, odd: object) -> None:
    session = fill(home, "odd one")
    fill(home, "stamps")
    with sqlite3.connect(home / "state.db") as connection:
        connection.execute("UPDATE sessions SET started_at = ? WHERE id = ?", (odd, session))
        connection.execute("UPDATE messages SET timestamp = ? WHERE session_id = ?", (odd, session))
    connection.close()
    for arguments in (("list",), ("show", session), ("search", "odd")):
        ran = hermes("sessions", *arguments)
        assert ran.code == 0, ran.err
    assert "stamps" in hermes("sessions", "list").out


@pytest.mark.processes
def test_output_that_cannot_be_written_is_one_line(home: Path) -> None:
    fill(home, "x")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hermes", "sessions", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HERMES_HOME": str(home)},
            check=False,
        )
    assert done.returncode == 1
    assert "cannot write the output" in done.stderr
    assert "defect" not in done.stderr


@pytest.mark.processes
def test_a_terminal_that_only_knows_ascii_gets_marks(home: Path) -> None:
    fill(home, "café 世界")
    done = hermes_process(home, "sessions", "list", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "caf?" in done.stdout


@pytest.mark.processes
def test_the_store_is_made_for_its_owner_alone_in_any_home(home: Path) -> None:
    home.mkdir(mode=0o755)
    assert hermes_process(home, "sessions", "list").returncode == 0
    assert (home / "state.db").stat().st_mode & 0o077 == 0


def test_a_title_that_a_file_wants_unique_is_refused_clearly(hermes: Hermes, home: Path) -> None:
    fill(home, "a", title="Trip")
    other = fill(home, "b")
    with sqlite3.connect(home / "state.db") as connection:
        connection.execute("CREATE UNIQUE INDEX one_title ON sessions (title) WHERE title IS NOT NULL")
    connection.close()
    ran = hermes("sessions", "title", other, "Trip")
    assert ran.code == 2
    assert "another session is called 'Trip'" in ran.err


@pytest.mark.processes
def test_a_message_that_begins_with_a_space_and_a_slash_is_said_from_a_pipe(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hermes", "chat"],
        input=" /slash hello\n",
        capture_output=True,
        text=True,
        env={**os.environ, "HERMES_HOME": str(home)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Saved: /slash hello\n")


@pytest.mark.processes
@pytest.mark.contract("10.1")
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_what_was_said_before_the_process_is_asked_to_end_is_kept(home: Path, ending: signal.Signals) -> None:
    with serving([{"says": {"text": "one two three", "ending": "hang"}}]) as endpoint:
        with subprocess.Popen(
            [sys.executable, "-m", "hermes", "chat", "--json", "-q", "count"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(home, endpoint.base_url),
        ) as process:
            assert process.stdout is not None
            while "TextDelta" not in process.stdout.readline():
                pass
            process.send_signal(ending)
            process.stdout.read()
            assert process.wait() == 130
    connection = sqlite3.connect(home / "state.db")
    assert connection.execute("SELECT role, finish_reason FROM messages ORDER BY id").fetchall() == [
        ("user", None),
        ("assistant", "stopped"),
    ]
    connection.close()
