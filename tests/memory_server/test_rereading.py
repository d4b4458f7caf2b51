"""A home with conclusions of an earlier version's rules is reread once, and this can be undone."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.memory_server.db.schema import FILE
from hermes.memory_server.engine.conclusions import digest
from hermes.memory_server.engine.rereading import PREFIX
from hermes.ranking.traits import CONFIDENTIAL, UNWANTED
from tests.memory_server.in_file import wait_for_work
from tests.memory_server.serving import ROOT, inside, kill, running, start
from tests.scale import scale

pytestmark = [pytest.mark.contract("9.10"), pytest.mark.processes]
LISBON, PORTO = "I live in Lisbon.", "I moved to Porto last week."
REMARK = "I'm trying to run this script but it fails."
WISH = "Don't keep this: I had a fight with my husband."
MISSED = "Allergic to shellfish."
PIN = "The PIN of my card is 4821."
TOLD, EDITED = "ann: I wonder about my bike.", "ann: I hope it fails."
SAID = (LISBON, REMARK, WISH, PORTO, MISSED, PIN)
CONCLUDED = (LISBON, REMARK, WISH, PORTO)
"""Conclusions of rules that kept every sentence with `I`."""


def make_old(folder: Path, said: Sequence[str] = SAID, concluded: Sequence[str] = CONCLUDED) -> None:
    """Create a folder as version 17 left it: messages without marks, and conclusions that nothing supersedes."""
    quiet = {"reasoning": {"enabled": False}}
    with running(folder) as served, inside(served, "lab") as client:
        for first in range(0, len(said), 100):
            messages = [
                {"content": text, "peer_id": "ann", "configuration": quiet, "created_at": f"2026-03-{day:02}T10:00:00Z"}
                for day, text in enumerate(said[first : first + 100], first % 20 + 1)
                if day < 29
            ]
            client.post("/sessions/s/messages", json={"messages": messages}).raise_for_status()
        wait_for_work(folder)
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        [(workspace, peer)] = file.execute("SELECT workspace_id, id FROM peers WHERE name = 'ann'").fetchall()
        file.execute(
            "INSERT INTO collections (id, workspace_id, observer_id, observed_id) VALUES (1, ?, ?, ?)",
            (workspace, peer, peer),
        )
        for text in concluded:
            query = "SELECT id, session_id, created_at FROM messages WHERE content = ?"
            for message, session, at in file.execute(query, (text,)).fetchall():
                made = insert_old(file, workspace, f"ann: {text}", session, at)
                file.execute("INSERT INTO conclusion_messages VALUES (?, ?)", (message, made))
        insert_old(file, workspace, TOLD, None, at)
        edited = insert_old(file, workspace, EDITED, session, at)
        file.execute("INSERT INTO conclusion_messages VALUES (2, ?)", (edited,))
        file.execute("INSERT INTO conclusion_versions VALUES (?, 1, 'ann: It failed.', 1)", (edited,))
        file.execute(f"UPDATE message_vectors SET traits = traits & ~{UNWANTED | CONFIDENTIAL}")
        file.execute("UPDATE alembic_version SET version_num = '0018'")


def insert_old(file: sqlite3.Connection, workspace: int, text: str, session: int | None, at: int) -> int:
    names = "public_id, workspace_id, collection_id, session_id, content, digest, created_at, vector"
    number = file.execute("SELECT coalesce(max(id), 0) + 1 FROM conclusions").fetchone()[0]
    row = (f"old{number}", workspace, session, text, digest(text), at)
    file.execute(f"INSERT INTO conclusions ({names}) VALUES (?, ?, 1, ?, ?, ?, ?, zeroblob(512))", row)
    return int(number)


def listed(client: httpx.Client) -> dict[str, Any]:
    items = client.post("/conclusions/list?size=100", json={}).json()["items"]
    assert len({one["content"] for one in items}) == len(items), "each once"
    return {one["content"].removeprefix("ann: "): one for one in items}


def finished(client: httpx.Client) -> dict[str, Any]:
    """Wait until rereading is complete."""
    deadline = time.monotonic() + 100
    while (found := client.get("/ext/reread").json())["left"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)  # the server has no way to be waited for
    return dict(found)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Reread a home from which nothing was ever deleted."""
    folder = tmp_path_factory.mktemp("untouched")
    make_old(folder)
    with running(folder) as served, inside(served, "lab") as client:
        finished(client)
        yield client


def test_conclusions_that_the_reader_would_not_make_are_retired(untouched: httpx.Client) -> None:
    held = listed(untouched)
    assert REMARK not in held
    assert WISH not in held
    assert LISBON in held


def test_what_a_tool_told_and_what_was_edited_stays(untouched: httpx.Client) -> None:
    held = listed(untouched)
    assert TOLD.removeprefix("ann: ") in held
    assert EDITED.removeprefix("ann: ") in held


@pytest.mark.contract("9.5")
def test_old_conclusions_are_superseded_by_later_ones(untouched: httpx.Client) -> None:
    held = listed(untouched)
    assert held[LISBON]["superseded_by"] == held[PORTO]["id"]


def test_missed_statements_are_added_where_nothing_was_deleted(untouched: httpx.Client) -> None:
    assert MISSED in listed(untouched)


@pytest.mark.contract("7.10")
def test_old_messages_get_their_marks(untouched: httpx.Client) -> None:
    def found(query: str) -> list[str]:
        return [one["content"] for one in untouched.post("/search", json={"query": query}).json()]

    assert WISH not in found("fight with my husband")
    assert PIN not in found("Where do I live?")
    assert PIN in found("What is the PIN of my card?")


def test_health_counts_what_was_done(untouched: httpx.Client) -> None:
    with httpx.Client(base_url=str(untouched.base_url).partition("/v3")[0]) as outside:
        counts = outside.get("/health").json()["rereading"]
    assert counts == {"retired": 2, "added": 2, "undone": 0, "left": 0}


def test_what_was_concluded_as_a_whole_sentence_is_announced_as_no_work(tmp_path: Path) -> None:
    whole = "I'm Nina and I live in Lisbon."
    make_old(tmp_path, (whole, PORTO), (whole, PORTO))
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("UPDATE collections SET generation = 1")
    with running(tmp_path) as served, inside(served, "lab") as client:
        assert finished(client)["would_add"] == 0
        assert json.loads(reread(served.url, tmp_path, "--yes", "--json"))["added"] == 0


def test_rereading_waits_for_a_yes_where_something_was_deleted(tmp_path: Path) -> None:
    make_old(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("UPDATE collections SET generation = 1")
    with running(tmp_path) as served, inside(served, "lab") as client:
        told = finished(client)
        assert told["was_deleted"]
        assert f"ann: {MISSED}" in told["examples"]
        before = listed(client)
        assert MISSED not in before
        assert REMARK not in before

        said = reread(served.url, tmp_path, "--yes", "--json")
        assert json.loads(said)["added"] == 2
        assert MISSED in listed(client)
        assert json.loads(reread(served.url, tmp_path, "--yes", "--json"))["added"] == 2, "nothing twice"

        assert "undone" in reread(served.url, tmp_path, "--undo")
        after = listed(client)
        assert {LISBON, REMARK, WISH, PORTO} <= after.keys()
        assert MISSED not in after
        reread(served.url, tmp_path, "--yes")
        assert MISSED not in listed(client), "what was taken out stays out"


def reread(url: str, folder: Path, *options: str) -> str:
    env = {**os.environ, "HONCHO_URL": url, "HERMES_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "hermes", "memory", "reread", "lab", *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_killed_while_it_goes_over_a_home_it_ends_up_as_without(tmp_path: Path) -> None:
    towns = [f"I moved to {first}{last}." for first in ("Nor", "Sud", "Wes", "Ost") for last in ("burg", "heim", "au")]
    remarks = [f"I'm trying to run script {number} but it fails." for number in range(scale(60, 900))]
    missed = [f"Allergic to {what}." for what in ("nuts", "eggs", "dust", "latex")]
    mixed = [text for part in zip(remarks, (towns + missed) * 80, strict=False) for text in part]
    said = list(dict.fromkeys(mixed))
    make_old(tmp_path, said, [*towns, *remarks])
    whole = tmp_path / "whole"
    whole.mkdir()
    with closing(sqlite3.connect(tmp_path / FILE)) as file, closing(sqlite3.connect(whole / FILE)) as copy:
        file.backup(copy)
    with running(whole), closing(sqlite3.connect(whole / FILE)) as file:
        wait_for_work(whole)
        wanted = state(file)
    for number in range(scale(4, 40)):
        served = start(tmp_path)
        with closing(sqlite3.connect(tmp_path / FILE)) as file:
            wait_for_progress(file, number)
        kill(served)
    with running(tmp_path), closing(sqlite3.connect(tmp_path / FILE)) as file:
        wait_for_work(tmp_path)
        assert state(file) == wanted


def state(file: sqlite3.Connection) -> dict[str, list[Any]]:
    """Return the conclusions, retirements and reports, without random ids."""
    columns = "c.content, c.retired_why, o.content"
    query = f"SELECT {columns} FROM conclusions c LEFT JOIN conclusions o ON o.id = c.superseded_by"
    reports = [json.loads(row[0]) for row in file.execute("SELECT report FROM dreams")]
    return {
        "held": sorted(file.execute(query).fetchall(), key=str),
        "reported": [sum(len(report[name]) for report in reports) for name in ("added", "retired")],
        "counted": sorted(file.execute("SELECT * FROM meta WHERE name LIKE 'rereading%'").fetchall()),
        "left": file.execute("SELECT * FROM meta WHERE name LIKE ?", (f"{PREFIX}%",)).fetchall(),
    }


def wait_for_progress(file: sqlite3.Connection, number: int) -> None:
    """Wait until a part or all of the work is done, then for a moment that depends on `number`."""
    query = "SELECT name, value FROM meta WHERE name LIKE ?"
    before = file.execute(query, (f"{PREFIX}%",)).fetchall()
    while before and file.execute(query, (f"{PREFIX}%",)).fetchall() == before:
        time.sleep(0.001)
    time.sleep(number * 0.003 % 0.1)  # where in a part it dies
