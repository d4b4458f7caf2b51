"""Several processes on one folder, some killed midway: nothing is lost or duplicated, and order is kept."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from hermes.memory_server.db.schema import FILE, open_database
from tests.memory_server.serving import ROOT, Served, kill, running, start
from tests.scale import scale

pytestmark = pytest.mark.processes

SESSION_COUNT = 4


def say(client: httpx.Client, session: str, texts: Iterable[str]) -> list[str]:
    """Append messages to a session of the workspace, and return what was acknowledged."""
    body = {"messages": [{"content": text, "peer_id": "alice"} for text in texts]}
    answer = client.post(f"/v3/workspaces/w/sessions/{session}/messages", json=body)
    answer.raise_for_status()
    return [message["content"] for message in answer.json()]


def read_all(folder: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / FILE)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def check_whole(folder: Path) -> None:
    """Check that the file is sound, the text index matches its table, and every message has its vector."""
    assert read_all(folder, "PRAGMA integrity_check") == [("ok",)]
    connection = sqlite3.connect(folder / FILE)
    connection.execute("INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)")
    connection.close()
    assert read_all(folder, "SELECT id FROM messages WHERE id NOT IN (SELECT message_id FROM message_vectors)") == []
    assert read_all(folder, "SELECT session_id FROM messages GROUP BY 1 HAVING count(*) <> max(seq)") == []


def wait_until_idle(served: Served) -> None:
    with served.client() as client:
        while True:
            status = client.get("/v3/workspaces/w/queue/status").json()
            if status["pending_work_units"] + status["in_progress_work_units"] == 0:
                return
            threading.Event().wait(0.05)


@pytest.mark.stress
@pytest.mark.contract("9.1")
def test_two_processes_under_mixed_load_lose_nothing_and_do_no_work_twice(tmp_path: Path) -> None:
    rounds = scale(8, 500)
    with running(tmp_path) as first, running(tmp_path) as second:

        def work(number: int) -> list[str]:
            served = (first, second)[number % 2]
            said: list[str] = []
            with served.client() as client:
                for turn in range(rounds):
                    said += say(client, f"s{number % SESSION_COUNT}", [f"I own book {number} of shelf {turn}."])
                    if turn % 5 == 0:
                        client.post("/v3/workspaces/w/search", json={"query": "book"}).raise_for_status()
                        client.get(f"/v3/workspaces/w/sessions/s{number % SESSION_COUNT}/context").raise_for_status()
            return said

        with ThreadPoolExecutor(8) as pool:
            said = [text for texts in pool.map(work, range(8)) for text in texts]
        wait_until_idle(first)
    stored = [row[0] for row in read_all(tmp_path, "SELECT content FROM messages")]
    assert Counter(stored) == Counter(said)
    derived = read_all(tmp_path, "SELECT content, times_derived FROM conclusions WHERE deleted_at IS NULL")
    assert Counter(derived) == Counter({(f"alice: {text}", 1): 1 for text in said})
    assert read_all(tmp_path, "SELECT id FROM jobs WHERE attempts <> 1 OR state <> 'done'") == []
    check_whole(tmp_path)


@pytest.mark.stress
@pytest.mark.contract("9.1")
def test_killed_server_keeps_every_acknowledged_message_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: dict[str, list[str]] = {f"s{number}": [] for number in range(SESSION_COUNT)}
    for life in range(scale(2, 60)):
        served = start(tmp_path)
        alive = threading.Event()

        def talk(session: str, served: Served = served, life: int = life, alive: threading.Event = alive) -> None:
            with served.client() as client:
                for turn in range(10_000):
                    texts = [f"I said {life} {turn} {part} in {session}." for part in range(1 + turn % 3)]
                    try:
                        acknowledged[session] += say(client, session, texts)
                    except httpx.TransportError:
                        return
                    alive.set()

        threads = [threading.Thread(target=talk, args=(session,)) for session in acknowledged]
        for thread in threads:
            thread.start()
        assert alive.wait(100)
        threading.Event().wait(chance.uniform(0.0, 0.5))  # not to wait for anything: the moment of the kill is drawn
        kill(served)
        for thread in threads:
            thread.join()
    with running(tmp_path) as served:
        wait_until_idle(served)
    for session, texts in acknowledged.items():
        query = f"SELECT content FROM messages WHERE session_id = (SELECT id FROM sessions WHERE name = '{session}')"
        stored = [str(row[0]) for row in read_all(tmp_path, query + " ORDER BY seq")]
        assert len(stored) == len(set(stored))
        positions = [stored.index(text) for text in texts]
        assert positions == sorted(positions), "acknowledged messages changed their order"
    derived = [row[0] for row in read_all(tmp_path, "SELECT content FROM conclusions")]
    everything = [f"alice: {row[0]}" for row in read_all(tmp_path, "SELECT content FROM messages")]
    assert Counter(derived) == Counter(everything), "a message was reasoned about twice or not at all"
    check_whole(tmp_path)


@pytest.mark.parametrize("trouble", ["damaged", "newer", "no folder"])
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["worker"]])
def test_folder_that_cannot_be_opened_is_told_in_one_line(tmp_path: Path, command: list[str], trouble: str) -> None:
    folder = tmp_path / "memory"
    if trouble == "damaged":
        folder.mkdir()
        (folder / FILE).write_bytes(b"no database at all, but longer than nothing" * 40)
    elif trouble == "newer":
        asyncio.run(open_database(folder).close())
        with closing(sqlite3.connect(folder / FILE)) as file, file:
            file.execute("UPDATE alembic_version SET version_num = '9999'")
    else:
        folder.write_text("a file where the folder should be")
    ended = subprocess.run(
        [sys.executable, "-m", "hermes", "memory", *command, "--data", str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert str(folder) in ended.stderr
