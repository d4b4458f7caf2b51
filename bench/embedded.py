"""The background memory server: `python -m bench embedded`.

How long until it answers, how long ten programs that start at once take until each has written and read, how long
nobody is answered after a kill, and what an idle server takes of memory and processor after use.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

import httpx

from bench.table import Row, report, summarise
from hermes.embedded.connect import ServerConnection, connect, stop
from hermes.embedded.rendezvous import Place, read_rendezvous

STARTS = int(os.environ.get("BENCH_STARTS", "10"))
STORM_COUNT = 3
PROGRAM_COUNT = 10
KILLS = int(os.environ.get("BENCH_KILLS", "5"))
LIFE_SECONDS = 1.0
IDLE_SECONDS = float(os.environ.get("BENCH_IDLE", "60"))
WRITE_COUNT = 200
MESSAGES = "/v3/workspaces/w/sessions/s/messages"


@contextmanager
def new_place() -> Iterator[Place]:
    """Yield an empty home and stop its server at the end."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench", ignore_cleanup_errors=True) as home:
        place = Place(Path(home) / "memory", Path(home))
        yield place
        stop(place)


def _client(found: ServerConnection) -> httpx.Client:
    headers = {"Authorization": f"Bearer {found.api_key}"}
    return httpx.Client(base_url=found.base_url, headers=headers, timeout=30, trust_env=False)


def _write(client: httpx.Client, text: str) -> None:
    client.post(MESSAGES, json={"messages": [{"content": text, "peer_id": "ann"}]}).raise_for_status()


def start_once() -> tuple[float, float]:
    """Return the seconds until a new server has answered, on an empty home and on one with a file."""
    with new_place() as place:
        taken = []
        for _ in range(2):
            start = time.perf_counter()
            connect(place)
            taken.append(time.perf_counter() - start)
            stop(place)
    return taken[0], taken[1]


def storm() -> float:
    """Return the seconds until each of ten programs, started together on an empty home, has written and read."""
    with new_place() as place:
        start = time.perf_counter()
        command = [sys.executable, "-m", "tests.embedded.clients", str(place.home)]
        running = [
            subprocess.Popen([*command, str(number)], stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1])
            for number in range(PROGRAM_COUNT)
        ]
        codes = [process.wait() for process in running]
        taken = time.perf_counter() - start
        assert codes == [0] * PROGRAM_COUNT
    return taken


def gaps() -> list[float]:
    """Return the seconds from each kill of the server until the next server has answered a client that keeps
    writing."""
    answers: SimpleQueue[str] = SimpleQueue()
    over = threading.Event()

    def keep_writing(place: Place) -> None:
        while not over.is_set():
            found = connect(place)
            with _client(found) as client, suppress(httpx.TransportError):
                while not over.is_set():
                    _write(client, "I like tea.")
                    answers.put(found.api_key)

    with new_place() as place:
        connect(place)
        thread = threading.Thread(target=keep_writing, args=(place,), daemon=True)
        thread.start()
        found: list[float] = []
        for _ in range(KILLS):
            time.sleep(LIFE_SECONDS)
            running = read_rendezvous(place.rendezvous)
            assert running is not None
            killed = time.perf_counter()
            os.kill(running.pid, signal.SIGKILL)
            while answers.get(timeout=60) != running.api_key:
                continue  # from the one before
            while answers.get(timeout=60) == running.api_key:
                continue
            found.append(time.perf_counter() - killed)
        over.set()
        thread.join()
    return found


def idle() -> tuple[float, float]:
    """Return the megabytes and the share of a processor of a server that was used and is idle now."""
    with new_place() as place:
        with _client(connect(place)) as client:
            for number in range(WRITE_COUNT):
                _write(client, f"I keep item {number} and I like tea.")
                client.post("/v3/workspaces/w/search", json={"query": "tea"}).raise_for_status()
        running = read_rendezvous(place.rendezvous)
        assert running is not None
        time.sleep(5)  # its background work is done
        before = _cpu(running.pid)
        time.sleep(IDLE_SECONDS)
        used = (_cpu(running.pid) - before) / IDLE_SECONDS
        return _resident(running.pid), used


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(found[1]) / 1024 if found else 0.0


def run() -> None:
    """Measure and print."""
    starts = [start_once() for _ in range(STARTS)]
    rows: list[Row] = [
        summarise("ready, empty home", [first for first, _ in starts]),
        summarise("ready, home with a memory", [second for _, second in starts]),
        summarise(f"{PROGRAM_COUNT} programs at once, all written and read", [storm() for _ in range(STORM_COUNT)]),
        summarise("gap after a kill", gaps()),
    ]
    resident, processor = idle()
    report("Embedded: the background memory server", rows)
    print(f"  idle after use: resident {resident:.0f} MB, {processor * 100:.2f} % of a processor")  # noqa: T201
