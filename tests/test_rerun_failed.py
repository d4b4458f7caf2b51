"""The tests that `make test` may run a second time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.rerun_failed import MAX_RERUNS, may_rerun, rerun

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("test", "facts", "may"),
    [
        ("tests/cli/test_chat.py::test_x", ["10.1"], True),
        ("tests/cli/test_chat.py::test_x", [], True),
        ("tests/gateway/test_a.py::test_x", ["2.1", "10.2"], False),
        ("tests/honcho/test_a.py::test_x", ["5.10"], False),
        ("tests/honcho/test_a.py::test_x", ["5.11"], True),
        ("tests/honcho/test_a.py::test_x", ["P1"], False),
        ("tests/honcho/test_a.py::test_x", ["P5"], True),
        ("tests/db/test_queue.py::test_x", [], False),
    ],
)
def test_tests_of_durability_safety_and_people_are_not_run_again(test: str, facts: list[str], may: bool) -> None:
    assert may_rerun(test, facts) is may


def test_many_failures_are_no_accident() -> None:
    assert rerun({f"tests/x.py::test_{number}": [] for number in range(MAX_RERUNS + 1)}) == 1
    assert rerun({}) == 1


@pytest.mark.processes
def test_a_failed_test_is_written_down_with_its_facts(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
    (tmp_path / "test_sometimes.py").write_text(
        "import pathlib, pytest\n"
        "@pytest.mark.contract('10.1')\n"
        "def test_second_time():\n"
        f"    mark = pathlib.Path({str(tmp_path / 'was-here')!r})\n"
        "    there = mark.exists()\n"
        "    mark.touch()\n"
        "    assert there\n",
        encoding="utf-8",
    )
    written = tmp_path / "failed.json"
    environment = {"PATH": "/usr/bin:/bin", "HERMES_FAILED_TESTS": str(written), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider"]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True).returncode == 1
    [(test, facts)] = json.loads(written.read_text(encoding="utf-8")).items()
    assert facts == ["10.1"]
    again = subprocess.run(
        [sys.executable, "-m", "scripts.rerun_failed", str(written)],
        cwd=tmp_path,
        env={**environment, "HERMES_FAILED_TESTS": ""},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (again.returncode, f"flaky: {test}" in again.stdout) == (0, True), again.stdout
