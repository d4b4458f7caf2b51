"""Measures the memory server's requests per second with several API processes:

    python -m bench.memory_rates [--messages 20000] [--processes 1,2,4] [--seconds 10] [--migrate] [BASE_URL]

It fills one workspace in a folder, asks servers that do no background work, beside one worker, moves that memory to
PostgreSQL (the one that comes with the tests, with `fsync` on, or `--database URL`), and asks such servers there.
`--migrate` also moves it back. With BASE_URL the server there is filled and asked too, as it stands, such as Honcho's
own; `--url-only` asks no other. HONCHO_API_KEY holds its key. Only Honcho's public API is used. Every client is a
process with one connection that waits for each answer.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from honcho import Honcho

from bench import large
from bench.memory_server import API_KEY, CHANCE, CLIENT_COUNT, TALK_SIZE, resident, serve, wait_until_learnt, words
from bench.table import RESULTS
from hermes.memory_server.db.neighbours import EXACT_ROWS
from tests.postgres import running_postgres

KINDS = ("add 1", "search", "unused")
"""`unused` is a search for a word that nobody has said."""
BATCH_SIZE = 100
"""Messages per request while a workspace is filled."""
FILLER_COUNT = 4
WARM_SECONDS = 120.0
"""Longest time for a new server to fill its caches."""
SUMMARY_SECONDS = 900.0
"""Longest wait for the summaries of a new workspace."""
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second of one kind, from CLIENT_COUNT parallel clients."""

    storage: str
    processes: int
    messages: int
    kind: str
    rate: float
    p50: float
    p95: float

    def show(self) -> None:
        times = f"p50 {self.p50 * 1000:7.1f} ms   p95 {self.p95 * 1000:7.1f} ms"
        print(f"  {self.storage:<12} {self.processes} × {self.kind:<8} {self.rate:8.1f}/s   {times}", flush=True)  # noqa: T201


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage: its name in the table, and the options of servers and worker."""

    name: str
    options: Sequence[str]


class Caller:
    """One connection to a server."""

    def __init__(self, url: str, workspace: str) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=600)
        self._base = f"{parts.path.rstrip('/')}/v3/workspaces/{workspace}"

    def post(self, path: str, body: object) -> object:
        self._connection.request("POST", self._base + path, json.dumps(body), HEADERS)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
        return json.loads(content)


def ask(url: str, workspace: str, kind: str, seconds: float, number: int) -> list[float]:
    """Run one client for some time and return the duration of each request."""
    caller = Caller(url, workspace)
    CHANCE.seed(f"{kind} {number}")
    taken: list[float] = []
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        if kind != "add 1":
            asked = words(3) if kind == "search" else f"zq{time.time_ns()}x{number}"
            caller.post("/search", {"query": asked, "limit": 10})
        else:
            said = {"content": f"I keep item {time.time_ns()} in {words(22)}.", "peer_id": f"p{number}"}
            caller.post(f"/sessions/s{number}/messages", {"messages": [said]})
        taken.append(time.monotonic() - begun)
    return taken


def fill(url: str, workspace: str, talks: Sequence[int], size: int) -> int:
    """Write conversations of `size` messages; return the number of messages."""
    caller = Caller(url, workspace)
    CHANCE.seed(talks[0])
    for talk in talks:
        for start in range(0, size, BATCH_SIZE):
            numbers = range(talk * size + start, talk * size + min(start + BATCH_SIZE, size))
            given = [{"content": f"I keep item {number} in {words(22)}.", "peer_id": f"p{talk}"} for number in numbers]
            caller.post(f"/sessions/s{talk}/messages", {"messages": given})
    return size * len(talks)


def prepare(url: str, workspace: str, talks: int) -> None:
    """Create what other servers need before the first message."""
    honcho = Honcho(workspace_id=workspace, base_url=url, api_key=API_KEY)
    for talk in range(talks):
        honcho.session(f"s{talk}", metadata={}).add_peers([honcho.peer(f"p{talk}", metadata={})])


@contextmanager
def serving(storage: Storage, folder: str, processes: int) -> Iterator[list[tuple[int, str]]]:
    """Run API processes without background work, and one worker; yield number and address of each server."""
    options = ("--no-worker", *storage.options)
    started = [serve(folder, options=options) for _ in range(processes)]
    command = [sys.executable, "-m", "hermes", "memory", "worker", "--data", folder, *storage.options]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield [(process.pid, url) for process, url, _ in started]
    finally:
        for each in (process for process, *_ in started):
            each.terminate()
            each.wait()
        worker.terminate()
        worker.wait()


def measure(storage: str, urls: Sequence[str], workspace: str, messages: int, seconds: float) -> list[Rate]:
    """Return a row for each kind of request."""
    rates: list[Rate] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(CLIENT_COUNT, context) as pool:
        honcho = Honcho(workspace_id=workspace, base_url=urls[0], api_key=API_KEY)
        for kind in reversed(KINDS):
            for length in (1.0, seconds):  # the first fills what is kept in memory
                begun = [pool.submit(ask, urls[n % len(urls)], workspace, kind, length, n) for n in range(CLIENT_COUNT)]
                taken = sorted(each for one in begun for each in one.result())
            p95 = taken[int(len(taken) * 0.95)]
            found = Rate(storage, len(urls), messages, kind, len(taken) / seconds, statistics.median(taken), p95)
            found.show()
            rates.append(found)
            wait_until_learnt(honcho)
    return rates


def warm(urls: Sequence[str], workspace: str) -> None:
    """Search until the times stop improving: a server reads much of a large workspace before its first answer."""
    for url in urls:
        end, caller = time.monotonic() + WARM_SECONDS, Caller(url, workspace)
        taken = [float("inf")]
        while time.monotonic() < end and (len(taken) < 20 or max(taken[-5:]) > 2 * min(taken[-10:])):
            begun = time.monotonic()
            caller.post("/search", {"query": words(3), "limit": 10})
            taken.append(time.monotonic() - begun)


def write_all(storage: str, url: str, workspace: str, messages: int) -> None:
    """Fill a workspace through a server, several conversations in parallel."""
    talks = max(messages // TALK_SIZE, CLIENT_COUNT)
    prepare(url, workspace, talks)
    begun = time.monotonic()
    with ProcessPoolExecutor(FILLER_COUNT, multiprocessing.get_context("spawn")) as pool:
        parts = [range(talks)[start::FILLER_COUNT] for start in range(FILLER_COUNT)]
        fillers = [pool.submit(fill, url, workspace, part, max(messages // talks, 1)) for part in parts]
        written = sum(filler.result() for filler in fillers)
    rate = written / (time.monotonic() - begun)
    print(f"  {storage:<12} {written:,} messages, {BATCH_SIZE} at a time: {rate:,.0f} messages/s", flush=True)  # noqa: T201


def wait_for_index(database: str) -> None:
    """Wait until the vectors have their index, which servers that start later use."""
    query = "SELECT 1 FROM pg_class JOIN pg_index ON indexrelid = oid WHERE relname ~ '^near_' AND indisvalid"
    begun = time.monotonic()
    with psycopg.connect(database, autocommit=True) as connection:
        while connection.execute(query).fetchone() is None:
            time.sleep(0.5)
    print(f"  index of vectors made after {time.monotonic() - begun:.0f} s", flush=True)  # noqa: T201


def fill_folder(folder: str, messages: int) -> None:
    """Write the messages into a folder, without a server and without conclusions."""
    begun = time.monotonic()
    asyncio.run(large.fill(Path(folder), messages))
    rate = messages / (time.monotonic() - begun)
    print(f"  {messages:,} messages written to a folder, {rate:,.0f} messages/s", flush=True)  # noqa: T201


def measure_storage(storage: Storage, folder: str, chosen: argparse.Namespace) -> list[Rate]:
    """Return a row for each number of processes and kind of request."""
    with serving(storage, folder, 1) as [(_, url)]:
        wait_until_learnt(Honcho(workspace_id=large.WORKSPACE, base_url=url, api_key=API_KEY), SUMMARY_SECONDS)
        warm([url], large.WORKSPACE)
        if storage.options and chosen.messages > EXACT_ROWS:
            wait_for_index(storage.options[-1])
    rates: list[Rate] = []
    for processes in chosen.processes:
        with serving(storage, folder, processes) as servers:
            urls = [url for _, url in servers]
            warm(urls, large.WORKSPACE)
            rates += measure(storage.name, urls, large.WORKSPACE, chosen.messages, chosen.seconds)
            memory = max(resident(pid) for pid, _ in servers)
            print(f"  {storage.name:<12} {processes} × resident {memory:.0f} MB at most", flush=True)  # noqa: T201
    return rates


def measure_local(chosen: argparse.Namespace) -> list[Rate]:
    """Return the rows of a folder, and of PostgreSQL with the same memory."""
    with ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory(dir=Path(__file__).parent)) for _ in range(3)]
        server = stack.enter_context(running_postgres("fsync=on", "shared_buffers=256MB"))
        database = chosen.database or server.create()
        fill_folder(folders[0], chosen.messages)
        rates = measure_storage(Storage("SQLite", ()), folders[0], chosen)
        migrate(folders[0], database)
        rates += measure_storage(Storage("PostgreSQL", ("--database", database)), folders[1], chosen)
        if chosen.migrate:
            migrate(database, folders[2])
    return rates


def measure_url(chosen: argparse.Namespace) -> list[Rate]:
    """Return the rows of the server at BASE_URL, in a new workspace."""
    workspace = f"bench-{uuid.uuid4().hex[:8]}"
    write_all("elsewhere", chosen.url, workspace, chosen.messages)
    wait_until_learnt(Honcho(workspace_id=workspace, base_url=chosen.url, api_key=API_KEY))
    return measure("elsewhere", [chosen.url], workspace, chosen.messages, chosen.seconds)


def migrate(source: str, target: str) -> None:
    """Move a memory, and print the rows per second."""
    command = [sys.executable, "-m", "hermes", "memory", "migrate", source, target, "--json"]
    begun = time.monotonic()
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, rows = time.monotonic() - begun, json.loads(told)["rows"]
    total = sum(rows.values())
    where = "PostgreSQL" if "://" in target else "a folder"
    print(  # noqa: T201
        f"  moved to {where}: {rows['messages']:,} messages, {total:,} rows, {total / seconds:,.0f} rows/s", flush=True
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=20_000, help="1000000 takes about half an hour")
    options.add_argument("--processes", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4])
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--database", help="an empty database, without a password in the URL")
    options.add_argument("--migrate", action="store_true")
    options.add_argument("--url-only", action="store_true")
    options.add_argument("url", nargs="?")
    chosen = options.parse_args()
    rates = [] if chosen.url_only else measure_local(chosen)
    rates += measure_url(chosen) if chosen.url else []
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "memory_rates.json").write_text(json.dumps([asdict(rate) for rate in rates], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
