"""What tests of the terminal begin with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hermes.types import Json
from tests.cli.screen import Chat, Screen, plain_env

ROOT = Path(__file__).parent.parent.parent
ECHO = {"echo": True}


@pytest.fixture
def chat(tmp_path: Path, home: Path, processes: None) -> Iterator[Chat]:
    """Starts `hermes chat` against a scripted model: `chat({"says": …}, …)`; further turns are echoed."""
    servers: list[subprocess.Popen[str]] = []

    def start(*answers: Json, columns: int = 80, env: dict[str, str] | None = None, more: Sequence[str] = ()) -> Screen:
        script = tmp_path / f"script-{len(servers)}.json"
        script.write_text(json.dumps({"answers": answers, "then": ECHO}), encoding="utf-8")
        command = [sys.executable, "-m", "tests.llm.loopback", "--script", str(script)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ))
        servers.append(server)
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]
        model = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "HERMES_MODEL": "loop-1"}
        return Screen("chat", *more, env={**plain_env(home), **model, **(env or {})}, columns=columns)

    yield start
    for server in servers:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
