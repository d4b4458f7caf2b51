"""The data folder of `hermes memory`: one memory for all profiles of a person."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
PRIVATE = ("HERMES_", "AUTH_", "HONCHO_")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hermes", *arguments]


def environment(home: Path, **variables: str) -> Mapping[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
    return {**clean, "HERMES_HOME": str(home), **variables}


@contextmanager
def worker(home: Path, *profile: str, **variables: str) -> Iterator[list[str]]:
    """Run a worker; yield the lines that it prints before it is ready."""
    process = subprocess.Popen(
        command(*profile, "memory", "worker"), env=environment(home, **variables), stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        said: list[str] = []
        try:
            for line in process.stderr:
                said.append(line.rstrip("\n"))
                if line.startswith("memory worker on"):
                    break
            yield said
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("home", "profile"), [(".", ()), (".", ("-p", "work")), ("profiles/work", ()), ("profiles/work", ("-p", "other"))]
)
def test_every_profile_uses_the_memory_of_the_default_home(tmp_path: Path, home: str, profile: tuple[str, ...]) -> None:
    for name in ("work", "other"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    with worker(tmp_path / home, *profile) as said:
        assert said == [f"memory worker on {tmp_path / 'memory'}"]
    assert (tmp_path / "memory" / "memory.db").exists()


def test_a_profile_inherits_variables_of_the_default_home_and_overrides_them(tmp_path: Path) -> None:
    profile = tmp_path / "profiles" / "work"
    profile.mkdir(parents=True)
    (tmp_path / ".env").write_text(f"HERMES_MEMORY_DATA={tmp_path / 'all'}\nAUTH_USE_AUTH=true\n")
    with worker(tmp_path, "-p", "work") as said:
        assert said == [f"memory worker on {tmp_path / 'all'}"]
    (profile / ".env").write_text(f"HERMES_MEMORY_DATA={tmp_path / 'mine'}\n")
    with worker(tmp_path, "-p", "work") as said:
        assert said == [f"memory worker on {tmp_path / 'mine'}"]
    with worker(tmp_path, "-p", "work", HERMES_MEMORY_DATA=str(tmp_path / "now")) as said:
        assert said == [f"memory worker on {tmp_path / 'now'}"]
    refused = subprocess.run(
        command("-p", "work", "memory", "serve", "--port", "0"),
        env=environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "AUTH_USE_AUTH is on but AUTH_JWT_SECRET is empty" in refused.stderr


def test_memory_left_under_a_profile_by_an_earlier_version_is_reported_in_one_line(tmp_path: Path) -> None:
    for name in ("a", "b"):
        old = tmp_path / "profiles" / name / "memory"
        old.mkdir(parents=True)
        (old / "memory.db").touch()
    first = tmp_path / "profiles" / "a" / "memory"
    line = (
        f"memory of an earlier version in {first} and 1 more is not used here; "
        f"`hermes -p a memory serve --data {first}` serves it, "
        "and `hermes -p a memory export` and `import` take it along"
    )
    with worker(tmp_path, "-p", "a") as said:
        assert said == [line, f"memory worker on {tmp_path / 'memory'}"]
