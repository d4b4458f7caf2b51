"""Paths of a profile, and permissions of its folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes
from hermes.errors import HomeError, UsageError
from hermes.home import Home, default_home

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.contract("1.3")
@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"HOME": "/h"}, "/h/.hermes"),
        ({"HOME": "/h", "HERMES_HOME": ""}, "/h/.hermes"),
        ({"HOME": "/h", "HERMES_HOME": "/else/where"}, "/else/where"),
        ({"HOME": "/h", "HERMES_HOME": "~"}, "/h"),
        ({"HOME": "/h", "HERMES_HOME": "~/mine"}, "/h/mine"),
        ({"HOME": "/h", "HERMES_HOME": "/a/~/b"}, "/a/~/b"),
    ],
)
def test_home_is_where_the_environment_says(env: dict[str, str], path: str) -> None:
    assert default_home(env) == Path(path)


def test_relative_home_is_below_the_current_folder() -> None:
    assert default_home({"HERMES_HOME": "here"}) == Path.cwd() / "here"


def test_home_of_an_unknown_user_is_an_error() -> None:
    with pytest.raises(HomeError, match="~nobody-by-this-name"):
        default_home({"HERMES_HOME": "~nobody-by-this-name/x"})


@pytest.mark.parametrize(
    ("named", "asked", "path", "profile", "shared"),
    [
        ("x", None, "x", None, "x"),
        ("x", "work", "x/profiles/work", "work", "x"),
        ("x/profiles/work", None, "x/profiles/work", "work", "x"),
        ("x/profiles/work", "other", "x/profiles/other", "other", "x"),
        ("x/profiles/work", "default", "x", None, "x"),
        ("x/profiles", None, "x/profiles", None, "x/profiles"),
    ],
)
def test_home_that_is_a_profile_belongs_to_the_home_above_it(
    tmp_path: Path, named: str, asked: str | None, path: str, profile: str | None, shared: str
) -> None:
    home = Home.find({"HERMES_HOME": str(tmp_path / named)}, asked)
    assert (home.path, home.profile) == (tmp_path / path, profile)
    assert (home.shared, home.memory) == (tmp_path / shared, tmp_path / shared / "memory")


@pytest.mark.parametrize("profile", [None, "default"])
def test_default_profile_is_the_home_itself(profile: str | None, tmp_path: Path) -> None:
    home = Home.find({"HERMES_HOME": str(tmp_path)}, profile)
    assert (home.path, home.profile) == (tmp_path, None)
    assert home.state_file == tmp_path / "state.db"
    assert home.config_file == tmp_path / "config.yaml"
    assert home.env_file == tmp_path / ".env"
    assert home.old_routes_file == tmp_path / "sessions" / "sessions.json"


@pytest.mark.parametrize("profile", ["work", "a", "A-b_9", "7", "x" * 64])
def test_profile_lives_below_the_home(profile: str, tmp_path: Path) -> None:
    assert Home.find({"HERMES_HOME": str(tmp_path)}, profile).path == tmp_path / "profiles" / profile


@pytest.mark.parametrize(
    "profile", ["", ".", "..", "../x", "a/b", "a\\b", "-a", "_a", "a b", "ä", "x" * 65, "a\n", "a.b"]
)
def test_name_that_could_leave_the_folder_is_refused(profile: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a profile's name"):
        Home.find({"HERMES_HOME": str(tmp_path)}, profile)


def test_finding_a_home_makes_nothing(tmp_path: Path) -> None:
    Home.find({"HERMES_HOME": str(tmp_path / "h")}, "work")
    assert list(tmp_path.iterdir()) == []


@posix
def test_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    home = Home.find({"HERMES_HOME": str(tmp_path / "h")}, "work")
    home.ensure()
    home.ensure()
    assert [mode(path) for path in (home.path, home.path.parent, tmp_path / "h")] == [0o700] * 3


@posix
def test_permissions_that_the_owner_chose_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "h"
    folder.mkdir()
    folder.chmod(0o750)
    Home(folder).ensure()
    assert mode(folder) == 0o750


def test_file_in_place_of_the_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("")
    for path in (tmp_path / "h", tmp_path / "h" / "below"):
        with pytest.raises(HomeError, match="cannot create the home folder"):
            Home(path).ensure()


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder that everyone can reach and only its owner can write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.processes
@posix
@pytest.mark.parametrize(
    ("below", "said"), [("", "no read/write permission"), ("new", "cannot create the home folder")]
)
def test_folder_of_another_user_is_reported(foreign_folder: Path, below: str, said: str) -> None:
    foreign_folder.chmod(0o555)
    program = (
        "import os, sys; from pathlib import Path; from hermes.errors import HomeError; from hermes.home import Home\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: Home(Path(sys.argv[1])).ensure()\n"
        "except HomeError as error: print(error.line())\n"
    )
    source = str(Path(hermes.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program, str(foreign_folder / below)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    foreign_folder.chmod(0o755)
    assert said in done.stdout
    assert "HERMES_HOME" in done.stdout
