"""Conclusions from tens of thousands of messages are copied and deleted despite the parameter limit of statements."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes.clock import SystemClock
from hermes.memory_server.db import sqlite
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.db.sqlite import register_functions
from tests.memory_server.inside import serving

pytestmark = pytest.mark.contract("9.12")
SOURCE_COUNT = 33_000
"""Exceeds the parameters that SQLite allows in a statement by default."""
WHEN = "2026-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def _default_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set SQLite's default limit; some systems build it with a larger one."""

    def limited(connection: sqlite3.Connection) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)
        register_functions(connection)

    monkeypatch.setattr(sqlite, "register_functions", limited)


def fill(tx: Tx) -> None:
    """Create a session with many messages."""
    tx.exec_driver_sql("INSERT INTO workspaces (id, uid, name, created_at) VALUES (1, 'w', 'w', 1)")
    tx.exec_driver_sql("INSERT INTO peers (id, uid, workspace_id, name, created_at) VALUES (1, 'p', 1, 'ann', 1)")
    tx.exec_driver_sql(
        "INSERT INTO sessions (id, uid, workspace_id, name, created_at, message_count) VALUES (1, 's', 1, 's', 1, ?)",
        (SOURCE_COUNT,),
    )
    names = "id, public_id, workspace_id, session_id, peer_id, token_count, content, created_at, seq"
    rows = [(n, f"m{n}", n) for n in range(1, SOURCE_COUNT + 1)]
    tx.exec_driver_sql(f"INSERT INTO messages ({names}) VALUES (?, ?, 1, 1, 1, 1, 'x', 1, ?)", rows)
    tx.exec_driver_sql("INSERT INTO message_index (rowid, scope, content) SELECT id, scope, content FROM message_texts")


def conclusion(name: str, **more: Any) -> dict[str, Any]:
    pair = {"observer_id": "ann", "observed_id": "ann", "level": "explicit", "created_at": WHEN}
    return {"id": name, "content": f"ann is {name}", **pair, **more}


async def take(client: httpx.AsyncClient, *items: dict[str, Any]) -> None:
    answer = await client.post("/v3/workspaces/w/ext/import/conclusions", json={"items": list(items)})
    assert answer.json() == {"added": len(items), "present": 0, "refused": []}


async def test_conclusion_with_33000_source_messages_is_imported_and_exported(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(fill)
    sources = [f"m{n}" for n in range(1, SOURCE_COUNT + 1)]
    async with serving(database, SystemClock()) as client:
        await take(client, conclusion("c", message_ids=sources))
        told = (await client.get("/v3/workspaces/w/ext/export/conclusions")).json()
        assert told["items"][0]["message_ids"] == sources
        path = "/v3/workspaces/w/ext/conclusions/c/messages"
        assert (await client.get(path)).json()["total"] == SOURCE_COUNT


async def test_conclusion_with_33000_premises_is_deleted_with_the_last_one(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(fill)
    async with serving(database, SystemClock()) as client:
        drawn = conclusion("drawn", level="deductive", source_ids=[*(f"gone{n}" for n in range(SOURCE_COUNT)), "read"])
        await take(client, conclusion("read", message_ids=["m1"]), drawn)
        answer = await client.delete("/v3/workspaces/w/ext/sessions/s/messages/m1")
        assert answer.json() == {"deleted": 1}
        assert (await client.post("/v3/workspaces/w/conclusions/list")).json()["total"] == 0
