"""`/health` tells the truth: a file that is damaged, and a disk that is full."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import FILE, open_database
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.engine.messages import append_messages
from tests.compression.hand_clock import HandClock
from tests.memory_server.floor import draft
from tests.memory_server.inside import serving
from tests.memory_server.sdk import eventually

PAGES = "PRAGMA max_page_count = {}"
SAYS = {"messages": [{"content": "I like tea. " * 2000, "peer_id": "ann"}] * 20}


async def limit_pages(database: SqliteFile, pages: str) -> None:
    """Let the file have no room to grow, or let it have room again."""
    await database.look(lambda tx: tx.exec_driver_sql(PAGES.format(pages)).scalar())


async def health(client: httpx.AsyncClient, clock: HandClock) -> tuple[int, str]:
    clock.advance(2)
    answer = await client.get("/health")
    return answer.status_code, answer.json()["status"]


@pytest.mark.contract("9.8")
async def test_full_disk_is_told_as_that_and_health_says_so_until_there_is_room(tmp_path: Path) -> None:
    database, clock = open_database(tmp_path), HandClock()
    async with serving(database, clock) as client:
        await client.post("/v3/workspaces/w/sessions", json={"id": "s"})
        assert await health(client, clock) == (200, "ok")
        await limit_pages(database, "1")  # as many as there are
        refused = await client.post("/v3/workspaces/w/sessions/s/messages", json=SAYS)
        assert (refused.status_code, refused.json()["detail"]) == (
            507,
            "There is no room on the disk; nothing of this was kept",
        )
        assert await health(client, clock) == (503, "full")
        listed = await client.post("/v3/workspaces/w/sessions/s/messages/list")
        assert listed.json()["total"] == 0, "it can still be read, and nothing was kept"
        await limit_pages(database, "1000000")
        await eventually(lambda: health(client, clock), lambda told: told == (200, "ok"))
        assert (await client.post("/v3/workspaces/w/sessions/s/messages", json=SAYS)).status_code == 201


async def test_disk_without_room_is_seen_before_anyone_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    async with serving(open_database(tmp_path), clock) as client:
        assert await health(client, clock) == (200, "ok")
        monkeypatch.setattr("hermes.memory_server.db.sqlite.ROOM", 2**63)
        await eventually(lambda: health(client, clock), lambda told: told == (503, "full"))


async def test_damaged_file_is_told_by_health_also_when_nobody_met_the_damage(tmp_path: Path) -> None:
    database = open_database(tmp_path)

    def fill(tx: Tx) -> None:
        append_messages(tx, "w", "s", [draft(f"I keep item {n}. " * 40, "ann") for n in range(400)], 1)

    await database.write(fill)
    await database.close()
    path = tmp_path / FILE
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 12 * 4096] = b"\xa5" * (12 * 4096)
    path.write_bytes(raw)
    clock = HandClock()
    async with serving(open_database(tmp_path), clock) as client:
        await eventually(lambda: health(client, clock), lambda told: told == (503, "damaged"))
        clock.advance(3600)
        assert await health(client, clock) == (503, "damaged"), "what can be read says nothing of the rest"
