"""Measures the owner's page: `python -m bench.web [FACTS]`, by default with 10,000 facts.

Reports server time and size of the first page and of pages of the list, each after a request that warms up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import httpx

from bench.table import Row, report, summarise, time_calls
from hermes.embedded.connect import connect, stop
from hermes.embedded.place import Place

FACTS, CONCURRENT_COUNT, ROUNDS = 10_000, 100, 30
ROOT = "/v3/workspaces/hermes"


def run(facts: int = FACTS) -> None:
    """Measure the page of a home with this many facts."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "OPENAI_"))}
        env |= {"HERMES_HOME": str(home), "HOME": folder, "LOGNAME": "ann"}
        try:
            fill(home, facts)
            rows, told = measure(env, facts)
        finally:
            stop(Place(home / "memory", home))
    report("Web: the owner's page", rows)
    print("\n".join(told))  # noqa: T201 - this is the output


def fill(home: Path, facts: int) -> None:
    """Store facts of the agent about the owner."""
    found = connect(Place(home / "memory", home))
    headers = {"Authorization": f"Bearer {found.api_key}"}
    with httpx.Client(base_url=found.base_url, headers=headers, timeout=120, trust_env=False) as client:
        for peer in ("ann", "hermes"):
            client.post(f"{ROOT}/peers", json={"id": peer}).raise_for_status()
        for start in range(0, facts, CONCURRENT_COUNT):
            part = [
                {"observer_id": "hermes", "observed_id": "ann", "content": f"I keep item {start + number} in a box."}
                for number in range(min(CONCURRENT_COUNT, facts - start))
            ]
            client.post(f"{ROOT}/conclusions", json={"conclusions": part}).raise_for_status()


def measure(env: dict[str, str], facts: int) -> tuple[list[Row], list[str]]:
    """Return the rows, and the sizes of pages."""
    started = [sys.executable, "-m", "hermes", "web", "--no-open"]
    process = subprocess.Popen(started, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        base = link.partition("/enter")[0]
        entered = httpx.get(link, trust_env=False)
        with httpx.Client(base_url=base, cookies=entered.cookies, timeout=60, trust_env=False) as client:
            return _rows(client, facts)
    finally:
        process.terminate()
        process.wait()


def _rows(client: httpx.Client, facts: int) -> tuple[list[Row], list[str]]:
    middle = f"/memory?after=0:0.{facts // 200 + 1}.0"
    pages = {
        "first page": "/",
        "facts, first page": "/memory",
        "facts, in the middle": middle,
        "facts, a word that few hold": f"/memory?q={facts - 5}",
        "new chat": "/sessions",
    }
    rows, told = [], []
    for name, path in pages.items():
        answer = client.get(path)
        answer.raise_for_status()
        rows.append(summarise(f"{name}, N = {facts:,}", time_calls(partial(client.get, path), ROUNDS)))
        told.append(f"  {name}: {len(answer.content):,} bytes")
    files = ("app.css", "app.js", "htmx.min.js", "hx-sse.min.js", "icon.svg")
    whole = len(client.get("/").content) + sum(len(client.get(f"/static/{name}").content) for name in files)
    return rows, [*told, f"  first page with all its files: {whole:,} bytes"]


if __name__ == "__main__":
    run(*map(int, sys.argv[1:2]))
