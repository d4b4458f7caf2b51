"""`hermes profiles`, and the error for a mistyped `-p`."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.profiles import NOT_DELETABLE
from tests.cli.filling import fill, hold_gateway
from tests.conftest import Ran

Hermes = Callable[..., Ran]


@pytest.mark.contract("10.31")
@pytest.mark.parametrize("command", [("chat", "-q", "hello"), ("config", "path"), ("sessions", "list"), ("doctor",)])
def test_a_profile_that_is_not_there_is_an_error_and_is_not_made(
    hermes: Hermes, home: Path, command: tuple[str, ...]
) -> None:
    assert hermes("profiles", "create", "work").code == 0
    refused = hermes("-p", "wrok", *command)
    assert refused.code != 0
    assert refused.err == (
        "hermes: there is no profile 'wrok' (did you mean work?). `hermes profiles` lists them; "
        "`hermes profiles create wrok` makes it\n"
    )
    assert [path.name for path in (home / "profiles").iterdir()] == ["work"]


@pytest.mark.contract("10.31")
def test_a_profile_is_made_on_purpose_for_its_owner_alone_and_listed(hermes: Hermes, home: Path) -> None:
    made = hermes("profiles", "create", "work")
    assert (made.code, made.out.partition(".")[0]) == (0, f"Created {home / 'profiles' / 'work'}")
    assert stat.S_IMODE((home / "profiles" / "work").stat().st_mode) == 0o700
    listed = hermes("profiles").out.splitlines()
    assert [line.split()[0] for line in listed] == ["profile", "default", "work"]
    assert "*" in listed[1]
    assert [one["name"] for one in json.loads(hermes("profiles", "list", "--json").out)] == ["default", "work"]
    assert hermes("profiles", "--json").out == hermes("profiles", "list", "--json").out
    again = hermes("profiles", "create", "work")
    assert (again.code, again.err) == (
        2,
        "hermes: the profile 'work' exists already. `hermes profiles show work` shows it\n",
    )


@pytest.mark.contract("10.31")
def test_what_a_profile_holds_is_shown_without_changing_it(hermes: Hermes, home: Path) -> None:
    fill(home / "profiles" / "work", "one talk", "another talk")
    (home / "profiles" / "work" / "config.yaml").write_text("model:\n  default: small\n", encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in (home / "profiles" / "work").rglob("*")}
    told = json.loads(hermes("profiles", "show", "work", "--json").out)
    assert (told["sessions"], told["messages"], told["gateway_runs"]) == (1, 2, False)
    assert told["model.default"] == "small"
    assert "1 session, 2 messages" in hermes("profiles", "show", "work").out
    assert {path: path.stat().st_mtime_ns for path in (home / "profiles" / "work").rglob("*")} == before


@pytest.mark.contract("10.31")
def test_deleting_a_profile_asks_says_what_goes_and_leaves_the_others(hermes: Hermes, home: Path) -> None:
    for name in ("work", "play"):
        fill(home / "profiles" / name, "a talk")
    unasked = hermes("profiles", "delete", "work")
    assert (unasked.code, unasked.err) == (
        2,
        "hermes: deleting needs a confirmation. Add --yes to confirm without a terminal\n",
    )
    assert (home / "profiles" / "work" / "state.db").exists()
    done = hermes("profiles", "delete", "work", "--yes")
    assert done.code == 0
    assert "1 session, " in done.out
    assert "Synced messages stay with the memory provider" in done.out
    assert [path.name for path in (home / "profiles").iterdir()] == ["play"]


@pytest.mark.contract("10.31")
def test_the_default_home_the_home_in_use_and_one_with_a_gateway_are_not_deleted(
    hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = home / "profiles" / "work"
    fill(work, "a talk")
    hold_gateway(work)
    assert "a gateway runs in 'work'" in hermes("profiles", "delete", "work", "--yes").err
    assert NOT_DELETABLE in hermes("profiles", "delete", "default", "--yes").err
    monkeypatch.setenv("HERMES_HOME", str(work))
    assert "HERMES_HOME names the profile 'work'" in hermes("profiles", "delete", "work", "--yes").err
    assert (work / "state.db").exists()


def test_of_a_profile_that_is_a_link_the_link_alone_goes(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.yaml").write_text("", encoding="utf-8")
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "work").symlink_to(tmp_path / "elsewhere")
    assert hermes("profiles", "delete", "work", "--yes").code == 0
    assert list((home / "profiles").iterdir()) == []
    assert (tmp_path / "elsewhere" / "config.yaml").exists()


def test_a_store_that_cannot_be_read_is_said_and_can_be_deleted(hermes: Hermes, home: Path) -> None:
    (home / "profiles" / "work").mkdir(parents=True)
    (home / "profiles" / "work" / "state.db").write_text("this is no database", encoding="utf-8")
    assert "a store that cannot be read" in hermes("profiles", "show", "work").out
    assert hermes("profiles", "delete", "work", "--yes").code == 0
