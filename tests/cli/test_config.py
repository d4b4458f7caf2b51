"""`hermes config` and `hermes doctor` in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.filling import fill
from tests.conftest import Ran

Hermes = Callable[..., Ran]


def test_get_set_and_path_work_on_one_setting(hermes: Hermes, home: Path) -> None:
    assert hermes("config", "get", "store.lock_timeout").out == "30.0\n"
    assert hermes("config", "set", "store.lock_timeout", "2.5").code == 0
    assert hermes("config", "get", "store.lock_timeout").out == "2.5\n"
    assert hermes("config", "path").out.strip() == str(home / "config.yaml")
    assert (home / "config.yaml").stat().st_mode & 0o077 == 0


def test_set_refuses_what_is_not_allowed_and_changes_nothing(hermes: Hermes, home: Path) -> None:
    for arguments in (("store.lock_timeout", "never"), ("display.color", "pink"), ("no.such", "1")):
        ran = hermes("config", "set", *arguments)
        assert ran.code == 2
        assert arguments[0] in ran.err
    assert not (home / "config.yaml").exists()


@pytest.mark.contract("4.2", "10.6")
def test_a_memory_provider_that_is_not_there_is_said_when_it_is_set(hermes: Hermes) -> None:
    ran = hermes("config", "set", "memory.provider", "nope")
    assert ran.code == 0, "it may be installed later"
    assert "No memory provider 'nope' is installed yet. Known: " in ran.err
    assert hermes("config", "set", "memory.provider", "none").err == ""


def test_set_can_mend_a_wrong_value(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("# mine\nstore:\n  lock_timeout: soon  # hm\n")
    assert hermes("config", "set", "store.lock_timeout", "5").code == 0
    assert hermes("config", "get", "store.lock_timeout").out == "5.0\n"
    assert (home / "config.yaml").read_text().startswith("# mine\n")


def test_list_tells_where_each_value_comes_from(hermes: Hermes, monkeypatch: pytest.MonkeyPatch) -> None:
    hermes("config", "set", "display.color", "never")
    monkeypatch.setenv("HERMES_LOCK_TIMEOUT", "7")
    out = hermes("config", "list").out
    origins = {line.split()[0]: line.split()[-1] for line in out.splitlines()[1:]}
    assert origins["display.color"] == "file"
    assert origins["store.lock_timeout"] == "environment"
    assert max(map(len, out.splitlines())) <= 120, "a pipe is read by people too"
    assert json.loads(hermes("config", "list", "--json").out)["store.lock_timeout"] == 7.0


def test_env_file_of_the_home_is_read_but_the_environment_wins(
    hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / ".env").write_text("HERMES_LOCK_TIMEOUT=4\n# a comment\nexport HERMES_COLOR='never'\n")
    assert hermes("config", "get", "store.lock_timeout").out == "4.0\n"
    assert hermes("config", "get", "display.color").out == "never\n"
    monkeypatch.setenv("HERMES_LOCK_TIMEOUT", "9")
    assert hermes("config", "get", "store.lock_timeout").out == "9.0\n"


def test_doctor_is_content_with_a_fresh_and_a_used_home(hermes: Hermes, home: Path) -> None:
    assert hermes("doctor").code == 0
    assert not home.exists()
    fill(home, "hello")
    report = json.loads(hermes("doctor", "--json").out)
    assert report["ok"] is True
    assert any("1 sessions, 1 messages" in finding["detail"] for finding in report["findings"])


def test_doctor_finds_damaged_pages(hermes: Hermes, home: Path) -> None:
    fill(home, *["x" * 3000 for _ in range(50)])
    path = home / "state.db"
    data = bytearray(path.read_bytes())
    data[4096 * 20 : 4096 * 24] = b"\xff" * 4096 * 4
    path.write_bytes(data)
    ran = hermes("doctor")
    assert ran.code == 1
    assert "FAIL  store" in ran.out


def test_doctor_warns_of_secrets_that_others_can_read(hermes: Hermes, home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text("X=1\n")
    (home / ".env").chmod(0o644)
    ran = hermes("doctor")
    assert ran.code == 0
    assert "chmod 600" in ran.out
