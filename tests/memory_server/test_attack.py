"""A server under attack by twenty clients serves an ordinary one, without failures or unbounded memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.hostile import ATTACKS, Seen, attacked, end_under_attack, fill, ordinary, watched
from bench.memory_server import serve
from tests.scale import scale

pytestmark = [pytest.mark.processes, pytest.mark.stress]
MAX_MEMORY_MB = 600
"""Memory of the server and its child processes."""


@pytest.mark.contract("9.8")
def test_attacked_server_serves_on_without_an_error_in_bounded_memory_and_ends(tmp_path: Path) -> None:
    process, url, _ = serve(str(tmp_path))
    seen = Seen()
    try:
        fill(url, scale(1000, 20_000))
        with attacked(url, seen), watched(url, process.pid, seen):
            ordinary(url, scale(50, 1000), seen)
        assert seen.wrong() == {}
        assert {status for (name, status), _ in seen.statuses.items() if name == "ordinary"} == {200, 201}
        assert {status for (name, status), _ in seen.statuses.items() if name == "health"} == {200}
        assert len({name for name, _ in seen.statuses} & {*ATTACKS}) >= len(ATTACKS) // 2, "they were attacked"
        assert seen.resident < MAX_MEMORY_MB
        try:
            end_under_attack(process, url)
        except subprocess.TimeoutExpired:
            pytest.fail("the server did not end")
    finally:
        process.kill()
        with process:
            pass
