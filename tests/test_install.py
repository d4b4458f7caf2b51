"""What `make run` and `make test` install: two lists of pinned packages, and the script that installs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.install import FETCHING

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME = re.compile(r"[A-Za-z0-9_.-]+")


def pins(lock: str) -> set[str]:
    """Each `name==version` of a lock, with the condition it stands under."""
    return set(re.findall(r"^([\w.-]+==[^\\\n]+?) \\$", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


def names(wanted: list[str | dict[str, str]]) -> set[str]:
    return {
        NAME.match(one)[0].lower().replace(".", "-").replace("_", "-")  # type: ignore[index]
        for one in wanted
        if isinstance(one, str)
    }


@pytest.mark.contract("10.47")
def test_a_user_gets_what_the_product_needs_and_none_of_the_developers_tools() -> None:
    held = {pin.partition("==")[0] for pin in pins("requirements.lock")}
    assert names(PROJECT["project"]["dependencies"]) <= held
    assert names(PROJECT["dependency-groups"]["build"]) <= held, "without them the folder itself is not installed"
    assert not held & names(PROJECT["dependency-groups"]["dev"])


@pytest.mark.contract("10.47")
def test_developers_have_the_same_versions_and_their_tools_on_top() -> None:
    """So going from `make run` to `make test` and back installs nothing twice."""
    everything = pins("requirements-dev.lock")
    assert pins("requirements.lock") < everything
    assert names(PROJECT["dependency-groups"]["dev"]) <= {pin.partition("==")[0] for pin in everything}


@pytest.mark.parametrize(
    ("line", "package", "size"),
    [
        ("  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)", "numpy", "16.9 MB"),
        ("  Using cached ruamel_yaml-0.19.1-py3-none-any.whl.metadata (16 kB)", "ruamel_yaml", "16 kB"),
        ("Processing /somewhere/wheels/typer-0.28.0-py3-none-any.whl", "typer", None),
    ],
)
def test_each_package_that_pip_fetches_is_told(line: str, package: str, size: str | None) -> None:
    found = FETCHING.match(line)
    assert found is not None
    assert (found[1], found[2]) == (package, size)


@pytest.mark.processes
@pytest.mark.contract("10.47")
def test_what_pip_says_about_a_failure_is_printed(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text(f"nosuch-package-of-ours==1.0 --hash=sha256:{'0' * 64}\n")
    ran = subprocess.run(
        [sys.executable, "scripts/install.py", lock],
        cwd=ROOT,
        env={**os.environ, "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "No matching distribution found for nosuch-package-of-ours==1.0" in ran.stderr
    assert "ready" not in ran.stderr
