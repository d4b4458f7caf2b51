"""The real model of the slow tests: the one at HERMES_SLOW_MODEL_URL, or our own, started for the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    """The address of the real model."""
    if given := os.environ.get("HERMES_SLOW_MODEL_URL"):
        yield given
        return
    if os.environ.get("HERMES_SLOW") != "1":
        pytest.skip("needs a model of 1.2 GB: `make slow` fetches it, or HERMES_SLOW_MODEL_URL names an endpoint")
    command = [sys.executable, "-m", "scripts.real_model", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        # The engine may write lines of its own before ours.
        ready = next(line for line in server.stdout if line.startswith('{"port"'))
        yield f"http://127.0.0.1:{json.loads(ready)['port']}/v1"
        server.stdin.close()
        server.wait(30)
