"""Metrics for Prometheus; the table of keys has their permissions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hermes.clock import SystemClock
from hermes.memory_server.api.metrics import process_lines, write_lines
from hermes.memory_server.engine.worker import JobWorker
from tests.memory_server.floor import EMBEDDER
from tests.memory_server.inside import serving
from tests.memory_server.serving import ROOT
from tests.memory_server.storage import Storage
from tests.plain_http import PLAIN


@pytest.mark.contract("9.7", "9.8")
async def test_metrics_count_jobs_connections_and_retries(storage: Storage, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    database = storage.open(folder)
    async with serving(database) as client:
        worker = JobWorker(database, SystemClock(), EMBEDDER)
        said = {"messages": [{"content": "I live in Malta.", "peer_id": "ann"}]}
        (await client.post("/v3/workspaces/w/sessions/s/messages", json=said)).raise_for_status()
        told = (await client.get("/metrics")).text
        assert "\nhermes_memory_jobs_waiting 1\n" in told
        assert "/v3/workspaces/{workspace_id}/sessions/{session_id}/messages" in told
        assert "Malta" not in told
        while await worker.work_once():
            pass
        shown = bytes(write_lines(process_lines(worker, {"requests": database})).body).decode()
        assert 'hermes_memory_jobs_total{kind="representation",outcome="done"} 1\n' in shown
        of_server = 'hermes_memory_database_connections{use="requests",state="most"} 8\n' in shown
        assert of_server == (database.measure() is not None)


def test_worker_tells_its_counts_to_programs_of_this_machine(processes: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hermes", "memory", "worker", "--metrics-port", "0", "--data", str(tmp_path / "m")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HERMES_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        url = next(line.split()[-1] for line in lines if line.startswith("metrics on"))
        assert "hermes_memory_process_cpu_seconds_total" in httpx.get(url, verify=PLAIN).text
        process.terminate()
        assert process.wait(30) == 0
