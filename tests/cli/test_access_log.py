"""The access log: one line per request, without message texts, bounded, and never blocking."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.cli import memory_serving
from hermes.cli.memory_serving import AccessLog
from hermes.memory_server.api.life import Life
from hermes.memory_server.api.metrics import Visit
from hermes.memory_server.db.schema import open_database
from tests.memory_server.inside import serving

VISIT = Visit("GET", "/v3/workspaces/w/sessions", "/v3/workspaces/{workspace_id}/sessions", 200, 0.0123, "127.0.0.1")


@pytest.mark.contract("9.8")
async def test_every_request_is_a_line_with_neither_query_nor_key_nor_body(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    with AccessLog(path) as access:
        async with serving(open_database(tmp_path / "memory"), life=Life(listeners=[access.add])) as client:
            asked = {"headers": {"Authorization": "Bearer hidden-key"}, "params": {"page": "7"}}
            await client.post("/v3/workspaces", json={"id": "hidden-body"}, **asked)  # type: ignore[arg-type]
            await client.get("/nothing", params={"q": "hidden-query"})
    first, second = path.read_text().splitlines()
    assert first.split()[1:5] == ["127.0.0.1", "POST", "/v3/workspaces", "201"]
    assert second.split()[1:5] == ["127.0.0.1", "GET", "/nothing", "404"]
    assert "hidden" not in first + second


def test_path_cannot_write_a_line_of_its_own_and_is_not_long(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    with AccessLog(path) as access:
        access.add(Visit("GET", "/a\n2026 forged \x1b[2J ü" + "x" * 10_000, "other", 404, 0.0, "127.0.0.1"))
    [line] = path.read_text().splitlines()
    assert len(line) < 1000
    assert "/a\\n2026%20forged" in line
    assert line.isascii()


def test_log_is_rotated_and_lines_beyond_what_may_wait_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_serving, "MAX_FILE_BYTES", 1000)
    monkeypatch.setattr(memory_serving, "MAX_QUEUED_LINES", 5)
    monkeypatch.setattr(memory_serving, "GATHER_SECONDS", 600.0)  # nothing is written before the end
    path = tmp_path / "access.log"
    for _ in range(20):
        with AccessLog(path) as access:
            for _ in range(8):
                access.add(VISIT)
    files = sorted(tmp_path.glob("access.log*"))
    assert sum(file.stat().st_size for file in files) < 6000
    assert "3 requests are missing here" in path.read_text()


def test_log_that_cannot_be_opened_is_told_once_and_nobody_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    with AccessLog(tmp_path / "logs" / "access.log") as access:
        access.add(VISIT)
        access.add(VISIT)
    assert caplog.text.count("cannot write the access log") == 1
