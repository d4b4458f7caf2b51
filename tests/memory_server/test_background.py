"""Background work: webhooks, a worker of its own, leases."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hermes.clock import SystemClock
from hermes.memory_server import times
from hermes.memory_server.db.engine import Database
from hermes.memory_server.db.schema import open_database
from hermes.memory_server.engine import jobs
from hermes.memory_server.engine.messages import append_messages, prepare_draft
from hermes.memory_server.engine.queue_status import Counts, read_status
from hermes.memory_server.engine.worker import LeaseLostError, Worker
from tests.memory_server.sdk import connected, eventually
from tests.memory_server.serving import ROOT, running

NOW = 1_700_000_000_000_000


@contextmanager
def listening() -> Iterator[tuple[str, list[tuple[bytes, str | None]]]]:
    """An endpoint, and what was posted to it: body and signature."""
    posted: list[tuple[bytes, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((body, self.headers.get("X-Honcho-Signature")))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            return

    endpoint = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=endpoint.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{endpoint.server_port}/hook", posted
    finally:
        endpoint.shutdown()
        thread.join()
        endpoint.server_close()


@pytest.mark.processes
async def test_webhook_is_told_when_the_queue_is_empty_and_signed(tmp_path: Path) -> None:
    with listening() as (url, posted), running(tmp_path, WEBHOOK_SECRET="hush") as served, served.client() as http:
        made = http.post("/v3/workspaces/w/webhooks", json={"url": url})
        assert made.status_code == 201
        assert http.post("/v3/workspaces/w/webhooks", json={"url": url}).status_code == 200
        assert [hook["url"] for hook in http.get("/v3/workspaces/w/webhooks").json()["items"]] == [url]
        body = {"messages": [{"content": "I like tea.", "peer_id": "ann"}]}
        http.post("/v3/workspaces/w/sessions/s/messages", json=body).raise_for_status()

        async def look() -> list[tuple[bytes, str | None]]:
            return list(posted)

        (content, signature), *_ = await eventually(look)
        event = json.loads(content)
        assert content == json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
        assert set(event) == {"type", "data", "timestamp"}
        assert event["type"] == "queue.empty"
        assert event["data"]["workspace_id"] == "w"
        assert signature == hmac.new(b"hush", content, hashlib.sha256).hexdigest()
        http.get("/v3/workspaces/w/webhooks/test").raise_for_status()
        await eventually(look, lambda found: any(json.loads(body)["type"] == "test.event" for body, _ in found))
        assert http.delete(f"/v3/workspaces/w/webhooks/{made.json()['id']}").status_code == 204
        assert http.get("/v3/workspaces/w/webhooks").json()["total"] == 0


@pytest.mark.processes
async def test_webhooks_are_limited_to_ten(tmp_path: Path) -> None:
    with running(tmp_path) as served, served.client() as http:
        answers = [http.post("/v3/workspaces/w/webhooks", json={"url": f"https://e{n}.example"}) for n in range(11)]
    assert [answer.status_code for answer in answers] == [201] * 10 + [409]


def start_worker(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hermes", "memory", "worker", "--data", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.processes
async def test_worker_in_a_process_of_its_own_does_what_a_server_leaves(tmp_path: Path) -> None:
    with running(tmp_path, "--no-worker") as served:
        async with connected(served.url, "w") as honcho:
            alice = honcho.peer("alice")
            honcho.session("s").add_messages([alice.message("I like tea.")])
            assert honcho.queue_status().pending_work_units == 1
            worker = start_worker(tmp_path)
            try:
                text = await eventually(lambda: asyncio.to_thread(alice.representation))
            finally:
                worker.terminate()
                with worker:
                    assert worker.stderr is not None
                    said = worker.stderr.read()
            assert "I like tea." in text
            assert worker.returncode == 0
            assert said.count("\n") == 1


@pytest.fixture
async def database(tmp_path: Path) -> object:
    opened = open_database(tmp_path)
    yield opened
    await opened.close()


async def add(database: Database, kind: str = "summary", unit: str = "u") -> None:
    await database.write(lambda tx: jobs.add_job(tx, kind, unit, NOW, workspace_id=1, payload={}))


async def claim(database: Database, at: int) -> jobs.Job | None:
    return await database.write(lambda tx: jobs.claim_job(tx, "me", at))


async def give_up(database: Database, job: jobs.Job, at: int) -> None:
    await database.write(lambda tx: jobs.fail_job(tx, job, "no", at))


async def test_jobs_of_one_unit_run_one_after_another_and_other_units_meanwhile(database: Database) -> None:
    await add(database, unit="a")
    await add(database, unit="a")
    await add(database, unit="b")
    claims = [await claim(database, NOW) for _ in range(3)]
    assert [claim.unit if claim else None for claim in claims] == ["a", "b", None]
    first = claims[0]
    assert first is not None
    assert await database.write(lambda tx: jobs.finish_job(tx, first, NOW))
    following = await claim(database, NOW)
    assert following is not None
    assert following.unit == "a"


async def test_lease_that_ran_out_is_taken_over_and_its_old_owner_cannot_finish(database: Database) -> None:
    await add(database)
    old = await database.write(lambda tx: jobs.claim_job(tx, "old", NOW))
    assert old is not None
    assert await database.write(lambda tx: jobs.claim_job(tx, "new", NOW + jobs.LEASE)) is None
    await database.write(lambda tx: jobs.renew_job(tx, old, NOW + jobs.LEASE))
    assert await database.write(lambda tx: jobs.claim_job(tx, "new", NOW + jobs.LEASE + 1)) is None
    new = await database.write(lambda tx: jobs.claim_job(tx, "new", NOW + 2 * jobs.LEASE + 1))
    assert new is not None
    assert not await database.write(lambda tx: jobs.finish_job(tx, old, NOW))
    assert await database.write(lambda tx: jobs.finish_job(tx, new, NOW))


async def test_effect_of_a_worker_that_lost_its_lease_is_rolled_back(database: Database) -> None:
    await add(database)
    clock = SystemClock()
    worker = Worker(database, clock)
    lost = await database.write(lambda tx: jobs.claim_job(tx, worker.owner, NOW))
    assert lost is not None
    await database.write(lambda tx: jobs.claim_job(tx, "another", times.now(clock)))
    with pytest.raises(LeaseLostError):
        await database.write(worker._doing(lost))


async def test_job_that_fails_is_tried_again_and_then_kept_with_its_reason(database: Database) -> None:
    await add(database, kind="unheard-of")
    at = NOW
    for _ in range(jobs.ATTEMPTS):
        claimed = await claim(database, at)
        assert claimed is not None
        await give_up(database, claimed, at)
        assert await claim(database, at) is None
        at += jobs.BACK_OFF * 2**claimed.attempts
    kept = await database.read(lambda tx: tx.exec_driver_sql("SELECT state, attempts, error FROM jobs").all())
    assert [tuple(row) for row in kept] == [("failed", jobs.ATTEMPTS, "no")]


async def test_done_work_is_forgotten_after_a_day_and_failed_work_after_a_month(database: Database) -> None:
    day = 24 * 3600 * 1_000_000
    for unit in ("done", "failed", "open"):
        await add(database, unit=unit)
    done, failed, _ = [await claim(database, NOW) for _ in range(3)]
    assert done is not None
    assert failed is not None
    await database.write(lambda tx: jobs.finish_job(tx, done, NOW))
    await database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET attempts = 5 WHERE unit = 'failed'"))
    await give_up(database, dataclasses.replace(failed, attempts=5), NOW)

    async def kept(at: int) -> list[str]:
        await database.write(lambda tx: jobs.forget_finished(tx, at))
        return [row[0] for row in await database.read(lambda tx: tx.exec_driver_sql("SELECT unit FROM jobs").all())]

    assert await kept(NOW + day) == ["done", "failed", "open"]
    assert await kept(NOW + day + 1) == ["failed", "open"]
    assert await kept(NOW + 30 * day) == ["failed", "open"]
    assert await kept(NOW + 30 * day + 1) == ["open"]


async def test_job_that_fails_in_the_middle_leaves_nothing_and_is_kept_with_its_reason(database: Database) -> None:
    drafts = [prepare_draft("I like tea.", "ann")]
    await database.write(lambda tx: append_messages(tx, "w", "s", drafts, NOW))
    broken = """UPDATE jobs SET payload = '{"messages": [1], "observers": [1, null]}'"""
    await database.write(lambda tx: tx.exec_driver_sql(broken))
    worker = Worker(database, SystemClock())
    assert await worker.work_once()
    assert not await worker.work_once(), "it is tried again later, not at once"
    query = "SELECT state, attempts, error IS NOT NULL, (SELECT count(*) FROM conclusions) FROM jobs"
    assert [tuple(row) for row in await database.read(lambda tx: tx.exec_driver_sql(query).all())] == [
        ("pending", 1, 1, 0)
    ]
    assert (await status(database)).pending == 1
    await database.write(lambda tx: tx.exec_driver_sql("UPDATE jobs SET attempts = 4, not_before = 0"))
    assert await worker.work_once()
    assert await status(database) == Counts(completed=1), "nobody waits for what has failed for good"


async def status(database: Database) -> Counts:
    return (await database.read(lambda tx: read_status(tx, "w", None, None, None))).all
