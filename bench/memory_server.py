"""Measures the memory server through the official SDK: `python -m bench.memory_server [BASE_URL]`.

Without an address it serves a new folder and also reports the cold start, the memory and the disk usage. Any Honcho v3
can be asked; HONCHO_API_KEY holds its key.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from honcho import Honcho

from bench.table import Row, report, summarise, time_calls

SIZES = tuple(int(size) for size in os.environ.get("BENCH_SIZES", "1000,4000,22000").split(","))
"""Messages in a workspace; 1,000,000 take a quarter of an hour to store."""
TALK_SIZE = 1000
"""Messages in one session, all by one peer, so that conversations and people keep their size while the workspace
grows."""
CLIENT_COUNT = 16
API_KEY = os.environ.get("HONCHO_API_KEY") or "unused"
LEARNING_TIMEOUT_SECONDS = 60.0
"""Longest wait for background work."""
CHANCE = random.Random(7)
VOCABULARY = ["".join(CHANCE.choices("aeioulnrstmdkpgvb", k=CHANCE.randint(3, 9))) for _ in range(8000)]
OFTEN = list(itertools.accumulate(1.0 / rank for rank in range(1, len(VOCABULARY) + 1)))
"""Word frequencies: few words are frequent and most are rare, as in natural text."""


def run() -> None:
    """Measure local servers, one for each size."""
    rows: list[Row] = []
    told: list[str] = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(dir=Path.cwd() / "bench") as folder:
            process, url, cold = serve(folder)
            try:
                rows += [Row(f"cold start, N = {size:,}", cold, cold), *measure(url, (size,))]
                memory = resident(process.pid)
                disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
            finally:
                process.terminate()
                process.wait()
        told.append(f"  N = {size:,}: resident {memory:.0f} MB, disk {disk / 1e6:.0f} MB")
    report("Memory_server: SDK over loopback", rows)
    print("\n".join(told))  # noqa: T201


def serve(folder: str, module: str = "hermes", options: Sequence[str] = ()) -> tuple[subprocess.Popen[str], str, float]:
    """Run a local server; yield its process, its address, and its start time."""
    start = time.perf_counter()
    command = [sys.executable, "-m", module, "memory", "serve", "--port", "0", "--data", folder, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+?:\d+", line)
    if found is None:
        process.kill()
        raise RuntimeError(f"the server began with: {line}")
    threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would hold up the server
    with urllib.request.urlopen(f"{found.group()}/health") as answer:
        answer.read()
    return process, found.group(), time.perf_counter() - start


def resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    fields = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+)", fields)
    return int(found.group(1)) / 1024 if found else 0.0


def measure(url: str, sizes: Sequence[int] = SIZES) -> list[Row]:
    """Return all rows, with a workspace for each size."""
    rows: list[Row] = []
    for size in sizes:
        floor = summarise("no-op (GET /health, httpx)", _time_health(url))
        rows += [floor, *_at_size(url, size, floor)]
    return rows


def _time_health(url: str) -> list[float]:
    import httpx

    with httpx.Client(base_url=url) as client:
        return time_calls(lambda: client.get("/health"), 200)


def words(count: int) -> str:
    """Return random words from a vocabulary of eight thousand."""
    return " ".join(CHANCE.choices(VOCABULARY, cum_weights=OFTEN, k=count))


def _text(number: int) -> str:
    return f"I keep item {number} in {words(22)}."


def _at_size(url: str, size: int, floor: Row) -> list[Row]:
    honcho = Honcho(workspace_id=f"bench-{uuid.uuid4().hex[:8]}", base_url=url, api_key=API_KEY)
    rows = [summarise(f"add 100, N = {size:,}", _fill(honcho, size), floor)]
    wait_until_learnt(honcho)
    peer, bob = honcho.peer("p0"), honcho.peer("bob")
    session = honcho.session("s0")
    view = peer.conclusions_of(bob)
    bob.get_metadata()
    view.create([{"content": _text(number)} for number in range(100)])
    numbers = iter(range(1_000_000, 9_000_000))
    cases: dict[str, tuple[Callable[[], Any], int]] = {
        "create session": (lambda: honcho.session(f"n{next(numbers)}", metadata={}), 60),
        "add 1": (lambda: session.add_messages(peer.message(_text(next(numbers)))), 150),
        "list 50": (session.messages, 100),
        "context 2,000 tokens": (lambda: session.context(tokens=2000), 150),
        "search workspace": (lambda: honcho.search(words(3), limit=10), 100),
        "search session": (lambda: session.search(words(3), limit=10), 100),
        "search peer": (lambda: peer.search(words(3), limit=10), 100),
        "representation": (lambda: peer.representation(search_query=words(3)), 100),
        "conclusions create 1": (lambda: view.create([{"content": _text(next(numbers))}]), 100),
        "conclusions query": (lambda: view.query(words(3)), 100),
    }
    for name, (call, count) in cases.items():
        call()  # the first fills what is kept in memory
        rows.append(summarise(f"{name}, N = {size:,}", time_calls(call, count), floor))
        wait_until_learnt(honcho)
    rows.append(_together(url, honcho.workspace_id, size, "add 1", lambda c, n: c.session(f"t{n}").add_messages))
    rows.append(_together(url, honcho.workspace_id, size, "search", lambda c, _n: c.search))
    return rows


def _fill(honcho: Honcho, size: int) -> list[float]:
    taken: list[float] = []
    for talk in range(-(-size // TALK_SIZE)):
        session, peer = honcho.session(f"s{talk}"), honcho.peer(f"p{talk}")
        for batch in range(min(TALK_SIZE, size - talk * TALK_SIZE) // 100):
            given = [peer.message(_text(talk * TALK_SIZE + batch * 100 + number)) for number in range(100)]
            start = time.perf_counter()
            session.add_messages(given)
            taken.append(time.perf_counter() - start)
    return taken


def wait_until_learnt(honcho: Honcho, seconds: float = LEARNING_TIMEOUT_SECONDS) -> None:
    """Wait until no work is left, or for a limited time: other servers delay small work for half an hour."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        status = honcho.queue_status()
        if status.pending_work_units + status.in_progress_work_units == 0:
            return
        time.sleep(0.05)
    print(f"  (work still waits after {seconds:g} s; measured all the same)")  # noqa: T201


def _together(url: str, workspace: str, size: int, name: str, bind: Callable[[Honcho, int], Any]) -> Row:
    """Run many clients in parallel; the row's name has the calls per second."""
    clients = [Honcho(workspace_id=workspace, base_url=url, api_key=API_KEY) for _ in range(CLIENT_COUNT)]
    calls = [bind(client, number) for number, client in enumerate(clients)]
    author = clients[0].peer("p0")

    def work(number: int) -> list[float]:
        def once() -> object:
            return calls[number](author.message(_text(number)) if name == "add 1" else words(3))

        once()
        return time_calls(once, 40)

    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENT_COUNT) as pool:
        taken = [seconds for part in pool.map(work, range(CLIENT_COUNT)) for seconds in part]
    rate = len(taken) / (time.perf_counter() - start)
    return summarise(f"{CLIENT_COUNT} × {name}, N = {size:,} ({rate:.0f}/s)", taken)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report("Memory_server: SDK over loopback", measure(sys.argv[1]))
    else:
        run()
