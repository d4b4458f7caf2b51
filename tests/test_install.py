"""Installation by `make run` and `make test`: two lists of pinned packages, and the script that installs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from scripts.install import FETCHING
from tests.scale import FULL

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME = re.compile(r"[A-Za-z0-9_.-]+")


def pins(lock: str) -> set[str]:
    """Return each `name==version` of a lock, with its condition."""
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
    """Switching between `make run` and `make test` then installs nothing twice."""
    everything = pins("requirements-dev.lock")
    assert pins("requirements.lock") < everything
    assert names(PROJECT["dependency-groups"]["dev"]) <= {pin.partition("==")[0] for pin in everything}


@pytest.mark.parametrize(
    ("line", "package", "size"),
    [
        ("  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)", "numpy", "16.9 MB"),
        ("  Using cached ruamel_yaml-0.19.1-py3-none-any.whl.metadata (16 kB)", "ruamel_yaml", "16 kB"),
        ("Processing /wheels/typer-0.28.0-py3-none-any.whl (from -r requirements.lock (line 9))", "typer", None),
    ],
)
def test_each_package_that_pip_fetches_is_listed(line: str, package: str, size: str | None) -> None:
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


def run(*command: str | Path, **env: str) -> str:
    """Return the output of a command, which must succeed."""
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


UV = Path(sys.executable).with_name("uv")


@pytest.mark.processes
@pytest.mark.contract("10.47")
def test_a_package_made_of_this_folder_brings_all_it_needs(tmp_path: Path) -> None:
    """Use the packages that are installed here, so that nothing is downloaded."""
    run(UV, "build", "--wheel", "--offline", "--no-build-isolation", "--out-dir", tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    run(UV, "venv", "--offline", "--python", sys.executable, tmp_path / "venv")
    run(UV, "pip", "install", "--offline", "--no-deps", "--python", tmp_path / "venv", wheel)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    hermes = tmp_path / "venv" / "bin" / "hermes"
    assert run(hermes, "--version").startswith("hermes ")
    assert "_hermes()" in run(hermes, "completion", "bash")
    assert "sessions" in run(hermes, "__complete", "ses")
    said = run(hermes, "chat", "-q", "My cat is called Miso.", HERMES_HOME=str(tmp_path / "home"))
    assert said == "Saved: My cat is called Miso.\n"
    page = packages / "hermes" / "web"
    assert {"htmx.min.js", "app.css", "THIRD-PARTY.md"} <= {one.name for one in (page / "static").iterdir()}
    assert (page / "templates" / "session.html").exists()


@pytest.mark.stress
@pytest.mark.processes
@pytest.mark.contract("10.47")
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not FULL, reason="fetches every package; `make stress` runs it")
@pytest.mark.parametrize("tool", ["pipx", "uv"])
def test_pipx_and_uv_put_hermes_on_the_path(tool: str, tmp_path: Path) -> None:
    places = {"PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin", "UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin"}
    env = {name: str(tmp_path / place) for name, place in places.items()}
    installer = ("run", "pipx", "install") if tool == "pipx" else ("install",)
    run(UV, "tool", *installer, ROOT, **env)
    for command in (["--version"], ["sessions", "--help"], ["completion", "fish"]):
        assert run("hermes", *command, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", HERMES_HOME=str(tmp_path / "home"))
    said = run(tmp_path / "bin" / "hermes", "chat", "-q", "My cat is called Miso.", HERMES_HOME=str(tmp_path / "home"))
    assert said == "Saved: My cat is called Miso.\n"
