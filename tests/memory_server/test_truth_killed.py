"""A server that is killed while it learns, supersedes and undoes loses nothing and duplicates nothing."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from hermes.memory_server.db.schema import FILE
from tests.memory_server.in_file import wait_for_work
from tests.memory_server.serving import inside, kill, running, start

pytestmark = pytest.mark.contract("9.5")
TOWNS = [f"{first}{last}" for first in ("Nor", "Sud", "Wes", "Ost") for last in ("burg", "heim", "stadt", "dorf", "au")]
INCONSISTENT = """
SELECT count(*) FROM conclusions AS c WHERE (c.superseded_by IS NOT NULL) <> EXISTS (
    SELECT 1 FROM supersessions AS s WHERE s.older_id = c.id AND s.kind = 'change' AND s.undone_at IS NULL
    AND s.newer_id = c.superseded_by
)
"""


def ask(folder: Path, query: str) -> int:
    with closing(sqlite3.connect(folder / FILE, timeout=30)) as file:
        return int(file.execute(query).fetchone()[0])


def wait_for(folder: Path, query: str, wanted: int) -> None:
    deadline = time.monotonic() + 60
    while ask(folder, query) < wanted:
        assert time.monotonic() < deadline, query
        time.sleep(0.001)  # the file has no way to be waited for


def test_killed_while_it_learns_and_supersedes_it_ends_up_with_each_once(processes: None, tmp_path: Path) -> None:
    served = start(tmp_path, "--no-worker")
    with inside(served, "lab") as client:
        for day, town in enumerate(TOWNS, start=1):
            said = {"content": f"I moved to {town}.", "peer_id": "ann", "created_at": f"2026-03-{day:02}T10:00:00Z"}
            assert client.post(f"/sessions/s{day % 3}/messages", json={"messages": [said]}).is_success
    kill(served)
    for learnt in (1, 4, 9):
        served = start(tmp_path)
        wait_for(tmp_path, "SELECT count(*) FROM conclusions", min(learnt, len(TOWNS)))
        kill(served)
        assert ask(tmp_path, INCONSISTENT) == 0
    with running(tmp_path):
        wait_for_work(tmp_path)
    assert ask(tmp_path, "SELECT count(*) FROM conclusions") == len(TOWNS)
    assert ask(tmp_path, "SELECT count(DISTINCT digest) FROM conclusions") == len(TOWNS)
    assert ask(tmp_path, "SELECT count(*) FROM conclusions WHERE superseded_by IS NULL") == 1
    assert ask(tmp_path, INCONSISTENT) == 0


def test_killed_while_it_undoes_it_has_undone_all_of_it_or_nothing(processes: None, tmp_path: Path) -> None:
    with running(tmp_path) as served, inside(served, "lab") as client:
        for day, text in enumerate(("I live in Lisbon.", "I moved to Porto."), start=1):
            said = {"content": text, "peer_id": "ann", "created_at": f"2026-03-{day:02}T10:00:00Z"}
            assert client.post("/sessions/s/messages", json={"messages": [said]}).is_success
        wait_for_work(tmp_path)
        [newer, _] = client.post("/conclusions/list", json={}).json()["items"]
        [pair] = client.get(f"/ext/conclusions/{newer['id']}/history").json()["supersessions"]
    path = f"/ext/supersessions/{pair['id']}"
    for _ in range(3):
        served = start(tmp_path)
        with inside(served, "lab") as client:
            undoing = threading.Thread(target=lambda: _try(client, path), daemon=True)
            undoing.start()
            kill(served)
            undoing.join()
        assert ask(tmp_path, INCONSISTENT) == 0
    with running(tmp_path) as served, inside(served, "lab") as client:
        assert client.delete(path).json()["undone_at"]
        held = client.post("/conclusions/list", json={}).json()["items"]
    assert [one["superseded_by"] for one in held] == [None, None]
    assert ask(tmp_path, INCONSISTENT) == 0


def _try(client: httpx.Client, path: str) -> None:
    with suppress(httpx.HTTPError):
        client.delete(path)
