"""`/health` reports the real state of the file, the disk, the worker and the backlog."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, select

from hermes import __version__
from hermes.loopback import CHALLENGE, PROOF, is_proof
from hermes.memory_server import times
from hermes.memory_server.api.app import EXTENSIONS
from hermes.memory_server.api.server import Options
from hermes.memory_server.db.database import Tx
from hermes.memory_server.db.schema import FILE, open_database, open_for_work
from hermes.memory_server.db.sqlite import SqliteFile
from hermes.memory_server.db.tables import message_vectors, meta
from hermes.memory_server.engine.jobs import claim_job, fail_job
from hermes.memory_server.engine.messages import append_messages
from tests.compression.hand_clock import HandClock
from tests.memory_server.floor import draft
from tests.memory_server.inside import serving
from tests.memory_server.sdk import eventually

PAGES = "PRAGMA max_page_count = {}"
SAYS = {"messages": [{"content": "I like tea. " * 2000, "peer_id": "ann"}] * 20}


async def limit_pages(database: SqliteFile, pages: str) -> None:
    """Prevent the file from growing, or let it grow again."""
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
            "The disk is full; nothing of this request was stored",
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
        monkeypatch.setattr("hermes.memory_server.engine.health.MIN_FREE_BYTES", 2**63)
        await eventually(lambda: health(client, clock), lambda told: told == (503, "full"))


async def test_damaged_file_is_told_by_health_also_when_nobody_met_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(tmp_path)

    def fill(tx: Tx) -> None:
        append_messages(tx, "w", "s", [draft(f"I keep item {n}. " * 40, "ann") for n in range(400)], 1)

    await database.write(fill)
    await database.close()
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as file:  # pages that opening the file does not read
        pages = file.execute(
            "SELECT pageno FROM dbstat WHERE name = 'message_vectors' AND pagetype = 'leaf'"
        ).fetchall()
    raw = bytearray(path.read_bytes())
    for (page,) in pages[10:22]:
        raw[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    clock = HandClock()
    async with serving(open_database(tmp_path), clock) as client:
        await eventually(lambda: health(client, clock), lambda told: told == (503, "damaged"))
        clock.advance(3600)
        assert await health(client, clock) == (503, "damaged"), "what can be read says nothing of the rest"
        monkeypatch.setattr("hermes.memory_server.engine.health.MIN_FREE_BYTES", 2**63)
        for _ in range(3):
            assert await health(client, clock) == (503, "damaged"), "another trouble does not take its place"


async def report(client: httpx.AsyncClient, clock: HandClock) -> dict[str, Any]:
    clock.advance(2)
    said: dict[str, Any] = (await client.get("/health")).json()
    return said


@pytest.mark.contract("9.8")
async def test_health_says_how_far_work_is_behind_and_what_there_is(tmp_path: Path) -> None:
    database, clock = open_database(tmp_path), HandClock()
    async with serving(database, clock) as client:
        said = await report(client, clock)
        assert said.pop("disk_free_bytes") > 0
        assert said == {
            "status": "ok",
            "version": __version__,
            "database": "ok",
            "worker": "elsewhere",
            "model": None,
            "finer_vectors": None,
            "lag": {
                "waiting_jobs": 0,
                "oldest_job_seconds": 0.0,
                "messages_without_vector": 0,
                "retried": {},
                "reasons": {},
            },
            "rereading": {"retired": 0, "added": 0, "undone": 0, "left": 0},
            "extensions": list(EXTENSIONS),
        }
        await client.post("/v3/workspaces/w/sessions/s/messages", json=SAYS)
        clock.advance(100)
        said = await eventually(lambda: report(client, clock), lambda told: told["lag"]["waiting_jobs"] > 0)
        assert said["lag"]["oldest_job_seconds"] >= 100
        assert said["lag"]["messages_without_vector"] == 0, "a message is written together with its vector"
        await database.write(lambda tx: tx.execute(delete(message_vectors)).rowcount)
        missing = len(SAYS["messages"])
        await eventually(lambda: report(client, clock), lambda told: told["lag"]["messages_without_vector"] == missing)


@pytest.mark.contract("9.8")
async def test_worker_that_ended_by_a_defect_is_told_and_its_server_still_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    async with serving(open_database(tmp_path), clock, work=open_for_work(tmp_path)) as client:
        assert await health(client, clock) == (200, "ok")
        assert (await client.get("/health")).json()["worker"] == "running"

        def break_down(*_: object) -> bool:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr("hermes.memory_server.engine.jobs.has_work", break_down)
        await eventually(lambda: health(client, clock), lambda told: told == (503, "worker stopped"))
        assert (await client.get("/health")).json()["worker"] == "stopped"
    assert "memory worker: the worker ended" in caplog.text


@pytest.mark.contract("9.8")
async def test_file_that_was_taken_away_is_told(tmp_path: Path) -> None:
    clock = HandClock()
    async with serving(open_database(tmp_path / "memory"), clock) as client:
        assert await health(client, clock) == (200, "ok")
        shutil.rmtree(tmp_path / "memory")
        await eventually(lambda: health(client, clock), lambda told: told == (503, "gone"))
        assert await health(client, clock) == (503, "gone"), "it does not come back"


async def test_whether_the_file_can_be_written_is_tried_when_nobody_else_writes(tmp_path: Path) -> None:
    database, clock = open_database(tmp_path), HandClock()

    async def tried() -> str | None:
        clock.advance(2)
        await client.get("/health")
        query = select(meta.c.value).where(meta.c.name == "health")
        return await database.read(lambda tx: tx.execute(query).scalar())

    async with serving(database, clock) as client:
        for _ in range(10):
            await client.post("/v3/workspaces/w/sessions", json={"id": "s"})
            assert await tried() is None, "what others write is enough"
        await eventually(tried, lambda value: value == "ok")


async def test_health_proves_the_servers_identity_without_revealing_its_secret(tmp_path: Path) -> None:
    async with serving(open_database(tmp_path), options=Options(start_id="known")) as client:
        answer = await client.get("/health", headers={CHALLENGE: "why?"})
        assert is_proof(answer.headers[PROOF], "known", "why?")
        assert not is_proof(answer.headers[PROOF], "guessed", "why?")
        assert "known" not in answer.text
        for silly in ("", "x" * 129):
            assert PROOF not in (await client.get("/health", headers={CHALLENGE: silly})).headers
        assert PROOF not in (await client.get("/health")).headers


@pytest.mark.contract("9.8")
async def test_deletion_that_does_not_succeed_is_told_by_health_and_queue_status(tmp_path: Path) -> None:
    database, clock = open_database(tmp_path), HandClock()
    async with serving(database, clock) as client:
        await client.post("/v3/workspaces/w/sessions/s/messages", json=SAYS)
        assert (await client.delete("/v3/workspaces/w/sessions/s")).status_code == 202
        for _ in range(7):
            clock.advance(1000)
            at = times.now(clock)
            job = await database.write(lambda tx, at=at: claim_job(tx, "me", "delete_session", at))  # type: ignore[misc]
            assert job is not None
            await database.write(lambda tx, job=job, at=at: fail_job(tx, job, "no", at))  # type: ignore[misc]
        said = await eventually(lambda: report(client, clock), lambda told: bool(told["lag"]["retried"]))
        assert said["lag"]["retried"] == {"delete_session": 7}
        told = (await client.get("/v3/workspaces/w/queue/status")).json()
        assert told["promised"] == {"delete_session": {"waiting": 1, "tries": 7}}
