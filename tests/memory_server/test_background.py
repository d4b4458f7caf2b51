"""Background work as users see it: webhooks, and a worker in a separate process."""

from __future__ import annotations

import asyncio
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
from hermes.memory_server.db.database import Database
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER
from tests.memory_server.inside import inward, serving
from tests.memory_server.sdk import connected, eventually
from tests.memory_server.serving import ROOT, running

pytestmark = pytest.mark.processes


@contextmanager
def listening() -> Iterator[tuple[str, list[tuple[bytes, str | None]]]]:
    """Yield the URL of an endpoint, and the bodies and signatures that it receives."""
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
    thread = threading.Thread(target=endpoint.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://hook.example:{endpoint.server_port}/hook", posted
    finally:
        endpoint.shutdown()
        thread.join()
        endpoint.server_close()


async def test_webhook_is_told_when_the_queue_is_empty_and_signed(database: Database) -> None:
    with listening() as (url, posted):
        async with serving(database) as http:
            (await http.post("/v3/workspaces", json={"id": "w"})).raise_for_status()
            made = await http.post("/v3/workspaces/w/webhooks", json={"url": url})
            assert made.status_code == 201
            assert (await http.post("/v3/workspaces/w/webhooks", json={"url": url})).status_code == 200
            listed = (await http.get("/v3/workspaces/w/webhooks")).json()["items"]
            assert [hook["url"] for hook in listed] == [url]
            body = {"messages": [{"content": "I like tea.", "peer_id": "ann"}]}
            (await http.post("/v3/workspaces/w/sessions/s/messages", json=body)).raise_for_status()
            worker = JobWorker(database, SystemClock(), EMBEDDER, delivery=inward("hush"))
            while await worker.work_once():
                pass
            [(content, signature)] = posted
            event = json.loads(content)
            assert content == json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
            assert set(event) == {"type", "data", "timestamp"}
            assert event["type"] == "queue.empty"
            assert event["data"]["workspace_id"] == "w"
            assert signature == hmac.new(b"hush", content, hashlib.sha256).hexdigest()
            tested = await http.get("/v3/workspaces/w/webhooks/test")
            assert (tested.status_code, tested.json()) == (200, None)
            assert await worker.work_once()
            assert json.loads(posted[-1][0])["type"] == "test.event"
            assert (await http.delete(f"/v3/workspaces/w/webhooks/{made.json()['id']}")).status_code == 204
            assert (await http.get("/v3/workspaces/w/webhooks")).json()["total"] == 0


async def test_webhooks_are_limited_to_ten(tmp_path: Path) -> None:
    with running(tmp_path) as served, served.client() as http:
        http.post("/v3/workspaces", json={"id": "w"}).raise_for_status()
        answers = [http.post("/v3/workspaces/w/webhooks", json={"url": f"https://e{n}.example"}) for n in range(11)]
    assert [answer.status_code for answer in answers] == [201] * 10 + [409]


def start_worker(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hermes", "memory", "worker", "--data", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


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
