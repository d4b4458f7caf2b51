"""Work on thousands of rows runs in parts: others write in between, and interrupted work is completed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from hermes.clock import SystemClock
from hermes.memory_server import times
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import FILE, open_database
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.engine import clone, deletion, members
from hermes.memory_server.engine.clone import begin_clone, copy_part
from hermes.memory_server.engine.deletion import delete_session
from hermes.memory_server.engine.messages import append_messages
from hermes.memory_server.engine.worker import JobWorker
from tests.compression.hand_clock import HandClock
from tests.memory_server.floor import EMBEDDER, draft
from tests.memory_server.inside import serving

T = TypeVar("T")
NOW = 1_700_000_000_000_000
S = "/v3/workspaces/w/sessions/s"


class Counted(SqliteFile):
    """A database that counts its write transactions."""

    writes = 0

    async def write(self, run: Callable[[Tx], T], group: str | None = None) -> T:
        self.writes += 1
        return await super().write(run, group)


@pytest_asyncio.fixture
async def counted(tmp_path: Path) -> AsyncIterator[Counted]:
    await open_database(tmp_path).close()
    database = Counted(tmp_path / FILE)
    yield database
    await database.close()


async def say(database: SqliteFile, count: int) -> None:
    drafts = [draft(f"I own house {n}.", f"p{n % 3}") for n in range(count)]
    await database.write(lambda tx: append_messages(tx, "w", "s", drafts, NOW))


async def work(database: SqliteFile, clock: Any = None) -> None:
    worker = JobWorker(database, clock or SystemClock(), EMBEDDER)
    while await worker.work_once():
        pass


async def test_thousands_of_members_join_and_leave_in_parts(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MEMBERS_PER_TRANSACTION", 50)
    names: dict[str, dict[str, bool]] = {f"p{n}": {} for n in range(240)}
    async with serving(counted) as client:
        assert (await client.post("/v3/workspaces/w/sessions", json={"id": "s", "peers": names})).status_code == 201
        assert counted.writes >= 5
        for method, given, left in (
            ("POST", {f"q{n}": {} for n in range(120)}, 360),
            ("PUT", {f"q{n}": {} for n in range(130)}, 130),
            ("DELETE", [f"q{n}" for n in range(125)], 5),
        ):
            before = counted.writes
            assert (await client.request(method, f"{S}/peers", json=given)).status_code == 200
            assert counted.writes - before >= 3
            assert (await client.get(f"{S}/peers")).json()["total"] == left


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_members_that_are_refused_are_refused_before_anybody_joins(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(members, "MEMBERS_PER_TRANSACTION", 50)
    async with serving(counted) as client:
        await client.post("/v3/workspaces/w/sessions", json={"id": "s", "peers": {"ann": {"observe_others": True}}})
        given = {f"p{n}": {"observe_others": n >= 190} for n in range(200)}
        refused = await client.request(method, f"{S}/peers", json=given)
        if method == "POST":
            assert refused.status_code == 400
            assert (await client.get(f"{S}/peers")).json()["total"] == 1
        else:
            assert refused.status_code == 200, "ann leaves, so that ten are left"
            given["p0"] = {"observe_others": True}
            assert (await client.request(method, f"{S}/peers", json=given)).status_code == 400
            assert (await client.get(f"{S}/peers")).json()["total"] == 200


async def test_message_in_a_session_of_thousands_costs_what_it_costs_elsewhere(counted: Counted) -> None:
    """Appending a message reads only the members that observe others."""
    given = {**{f"p{n}": {} for n in range(2000)}, "eve": {"observe_others": True}}
    async with serving(counted) as client:
        await client.post("/v3/workspaces/w/sessions", json={"id": "s", "peers": given})
        says = {"messages": [{"content": "I like tea.", "peer_id": "p7"}]}
        assert (await client.post(f"{S}/messages", json=says)).status_code == 201
        query = "SELECT p.name FROM job_observers o JOIN peers p ON p.id = o.peer_id ORDER BY 1"
        found = await counted.read(lambda tx: [row[0] for row in tx.exec_driver_sql(query)])
        assert found == ["eve", "p7"]


async def test_clone_is_made_in_parts_and_shown_when_it_is_whole(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clone, "MESSAGES_PER_TRANSACTION", 10)
    await say(counted, 95)
    async with serving(counted) as client:
        before = counted.writes
        made = (await client.post(f"{S}/clone")).json()
        assert counted.writes - before == 12
        said = [
            [(message["content"], message["peer_id"]) for message in answer.json()["items"]]
            for answer in [
                await client.post(f"/v3/workspaces/w/sessions/{name}/messages/list?size=100")
                for name in (made["id"], "s")
            ]
        ]
        assert said[0] == said[1]
        assert len(said[0]) == 95
        search = f"/v3/workspaces/w/sessions/{made['id']}/search"
        assert (await client.post(search, json={"query": "house 93"})).json()[0]["content"] == "I own house 93."
    assert made["is_active"] is True


async def test_clone_that_was_cut_off_is_seen_nowhere_and_removed_after_an_hour(database: SqliteFile) -> None:
    clock = HandClock()
    await say(database, 30)
    copy = await database.write(lambda tx: begin_clone(tx, "w", "s", None, times.now(clock)))
    await database.write(lambda tx: copy_part(tx, copy, 0))
    async with serving(open_database(database.path.parent)) as client:
        assert (await client.post("/v3/workspaces/w/sessions/list")).json()["total"] == 1
        found = (await client.post("/v3/workspaces/w/search", json={"query": "house 3", "limit": 100})).json()
        assert {message["session_id"] for message in found} == {"s"}
    clock.advance(3599)
    await work(database, clock)
    assert rows(database, "SELECT count(*) FROM sessions") == [(2,)]
    clock.advance(2)
    await work(database, clock)
    assert rows(database, "SELECT name FROM sessions") == [("s",)]
    assert rows(database, "SELECT count(*) FROM messages") == [(30,)]


async def test_clone_of_a_session_deleted_meanwhile_is_refused_and_leaves_no_rows(
    database: SqliteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clone, "MESSAGES_PER_TRANSACTION", 10)
    await say(database, 95)
    async with serving(database) as client:
        copied = clone.copy_part

        def delete_before(tx: Tx, copy: clone.Copy, after: int) -> int:
            if after == 50:
                delete_session(tx, "w", "s", NOW)
            return copied(tx, copy, after)

        monkeypatch.setattr("hermes.memory_server.api.sessions.copy_part", delete_before)
        assert (await client.post(f"{S}/clone")).status_code == 404
        await database.write(lambda tx: delete_session(tx, "w", "s", NOW))  # the refusal undid it
        await work(database)
        assert rows(database, "SELECT count(*) FROM sessions") == [(0,)]
        assert rows(database, "SELECT count(*) FROM messages") == [(0,)]


def rows(database: SqliteFile, query: str) -> list[Any]:
    with closing(sqlite3.connect(database.path)) as file:
        return file.execute(query).fetchall()


TABLES = ("messages", "message_vectors", "message_facts", "conclusions", "memberships", "summaries", "sessions")


async def test_session_and_workspace_are_removed_in_parts_and_leave_nothing(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "ROWS_PER_TRANSACTION", 10)
    await say(counted, 95)
    await work(counted)
    async with serving(counted) as client:
        says = {"messages": [{"content": "I am new.", "peer_id": "ann", "metadata": {"a": 1}}]}
        (await client.post(f"{S}/messages", json=says)).raise_for_status()
        await work(counted)
        assert all(rows(counted, f"SELECT count(*) FROM {table}") > [(0,)] for table in TABLES)
        before = counted.writes
        assert (await client.delete(S)).status_code == 202
        await work(counted)
        assert counted.writes - before > 2 * 10, "a claim and a part, again and again"
        for table in TABLES:
            assert rows(counted, f"SELECT count(*) FROM {table}") == [(0,)], table
        assert (await client.delete("/v3/workspaces/w")).status_code == 202
        await work(counted)
        for table in ("workspaces", "peers", "collections"):
            assert rows(counted, f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_deleted_conclusion_leaves_the_file(database: SqliteFile) -> None:
    async with serving(database) as client:
        await client.post("/v3/workspaces/w/peers", json={"id": "ann"})
        new = {"content": "ann keeps XYZZY", "observer_id": "ann", "observed_id": "ann"}
        [made] = (await client.post("/v3/workspaces/w/conclusions", json={"conclusions": [new]})).json()
        assert (await client.delete(f"/v3/workspaces/w/conclusions/{made['id']}")).status_code == 204
    assert rows(database, "SELECT count(*) FROM conclusions") == [(0,)]
    assert b"XYZZY" not in database.path.read_bytes()
