"""The host without Honcho: nothing imports it, and a copy without the folder starts and chats."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes
from tests.left_behind import end_all
from tests.scale import FULL, scale
from tests.source_imports import imports, parsed

SOURCE = Path(hermes.__file__).parent
ROOT = SOURCE.parents[1]
SAMPLE = ("tests/memory/test_addresses.py", "tests/settings", "tests/test_config_file.py", "tests/cli/test_config.py")
OF_ALL_ROOMS = (
    "tests/test_contract.py::test_every_built_fact_has_a_test_and_every_marked_number_is_a_fact",
    "tests/test_docs.py::test_every_file_function_and_test_that_a_page_names_exists",
    "tests/test_docs.py::test_the_drawing_of_the_packages_shows_what_they_import",
    "tests/test_packages.py::test_package_is_forbidden_everything_but_what_it_may_import",
)
"""Tests that compare the whole repository, including Honcho, with its documents."""
TIMEOUT_SECONDS = scale(240, 3000)


@pytest.mark.contract("4.2")
def test_nothing_outside_the_package_imports_it_or_the_sdk() -> None:
    for path, tree in parsed(SOURCE, "honcho"):
        if SOURCE / "honcho" not in path.parents:
            used = imports(tree)
            assert not {name for name in used if name.split(".")[0] == "honcho" or name.startswith("hermes.honcho")}, (
                path
            )


@pytest.fixture(scope="module")
def without_honcho(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without the folder `honcho`."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(SOURCE, folder / "hermes", ignore=shutil.ignore_patterns("honcho", "__pycache__"))
    assert not (folder / "hermes" / "honcho").exists()
    return folder


@pytest.fixture(autouse=True)
def _ended(tmp_path: Path) -> Iterator[None]:
    """Stop the memory server that a chat with Honcho starts."""
    yield
    end_all(tmp_path)


def test_tests_that_are_left_out_of_a_copy_are_there() -> None:
    for one in OF_ALL_ROOMS:
        file, _, name = one.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def run(copy: Path, home: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)]), "HERMES_HOME": str(home), **more}
    env["OPENAI_BASE_URL"] = ""
    return subprocess.run(
        [sys.executable, *command],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@pytest.mark.processes
@pytest.mark.contract("4.2", "4.3")
def test_a_copy_without_the_folder_starts_and_chats(without_honcho: Path, tmp_path: Path) -> None:
    where = run(without_honcho, tmp_path, "-c", "import hermes; print(hermes.__file__)")
    assert where.stdout.startswith(str(without_honcho))
    for command in (("--version",), ("--help",), ("memory", "status"), ("doctor",), ("chat", "-q", "hello")):
        ran = run(without_honcho, tmp_path, "-m", "hermes", *command)
        assert ran.returncode == 0, (command, ran.stderr)
    chosen = run(without_honcho, tmp_path, "-m", "hermes", "config", "set", "memory.provider", "honcho")
    assert chosen.returncode == 0
    ran = run(without_honcho, tmp_path, "-m", "hermes", "chat", "-q", "hello")
    assert ran.returncode == 0
    assert "memory provider 'honcho' cannot be loaded" in ran.stderr


@pytest.mark.processes
@pytest.mark.stress
@pytest.mark.contract("4.2")
def test_a_copy_without_the_folder_passes_the_hosts_tests(without_honcho: Path, tmp_path: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-m", "not processes and not slow")
    chosen = ("tests", "--ignore=tests/honcho", *(f"--deselect={one}" for one in OF_ALL_ROOMS)) if FULL else SAMPLE
    ran = run(without_honcho, tmp_path, "-m", "pytest", *options, *chosen, HERMES_STRESS="")
    assert ran.returncode == 0, ran.stdout[-4000:]


@pytest.mark.processes
@pytest.mark.parametrize("command", [("--version",), ("chat", "-q", "hello"), ("memory", "--help")])
def test_no_command_imports_the_sdk_when_it_starts(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "config.yaml").write_text("memory:\n  provider: honcho\n", encoding="utf-8")
    look = (
        "import sys; from hermes.cli.main import run; code = run(sys.argv[1:]); "
        "sys.exit(code or sorted(name for name in sys.modules if name.split('.')[0] == 'honcho') or 0)"
    )
    ran = run(SOURCE.parent, tmp_path, "-c", look, *command)
    assert ran.returncode == 0, ran.stderr
