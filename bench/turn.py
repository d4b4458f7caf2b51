"""How much of a turn is ours: `hermes chat -q` against an endpoint on loopback, less the endpoint's own time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.table import report, summarise, time_calls

RUNS = 12
DELAY = 0.2
"""Seconds that the endpoint thinks about each reply."""


def run() -> None:
    """Measure and print."""
    bare = summarise("python -c pass", time_calls(lambda: _run(dict(os.environ), "-c", "pass"), RUNS))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        offline = {**os.environ, "HERMES_HOME": folder, "OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}
        floor = time_calls(lambda: _run(offline, "-m", "hermes", "chat", "-q", "hi"), RUNS)
        waited = [seconds - DELAY for seconds in _time_turns(Path(folder))]
    report(
        "Turn: hermes chat -q, less the endpoint's own time",
        [bare, summarise("one reply", waited, bare), summarise("no model", floor, bare)],
    )


def _time_turns(folder: Path) -> list[float]:
    script = folder / "script.json"
    script.write_text(json.dumps({"then": {"says": {"text": "Hello.", "delay": DELAY}}}))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.llm.loopback", "--script", str(script)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            endpoint = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "x", "HERMES_MODEL": "loop"}
            env = {**os.environ, "HERMES_HOME": str(folder / "home"), **endpoint}
            return time_calls(lambda: _run(env, "-m", "hermes", "chat", "-q", "hi"), RUNS)
        finally:
            server.kill()


def _run(env: dict[str, str], *arguments: str) -> None:
    compiled = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, *arguments], check=True, stdin=subprocess.DEVNULL, capture_output=True, env=compiled
    )
