"""`make quick` starts no processes, and selects no test by mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "--version"], check=False),
        lambda: os.posix_spawn(sys.executable, [sys.executable, "--version"], {}),
    ],
)
def test_a_test_that_is_not_marked_can_start_no_process(start: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=r"test_a_test_that_is_not_marked.* mark it with pytest\.mark\.processes"):
        start()


def test_a_test_behind_a_fixture_that_starts_processes_is_marked(
    processes: None, request: pytest.FixtureRequest
) -> None:
    assert request.node.get_closest_marker("processes")
    assert subprocess.run([sys.executable, "--version"], check=True, capture_output=True).stdout
