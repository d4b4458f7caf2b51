"""The memory server under attack: `python -m bench hostile`.

Twenty clients send what costs a server most, side by side and again and again, while one makes ordinary calls. Told are
how much longer those take than alone, how long `/health` takes, how much memory the server takes with the processes it
starts, how long it takes to end in the middle of all that, and every status that is an error of ours.

`python -m bench bounds` sends the largest requests that there are, each alone and four times at once, and reports how
long `/health` of another client waits meanwhile and how much the server's memory grows.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from bench.memory_server import serve, words
from bench.table import Row, report, summarise
from hermes.memory_server.api.auth import ADMIN, make_key

MESSAGES = int(os.environ.get("BENCH_MESSAGES", "20000"))
CALLS = int(os.environ.get("BENCH_CALLS", "1000"))
RUNS = int(os.environ.get("BENCH_RUNS", "3"))
ATTACKER_COUNT = 20
DISK_FULL_STATUS = 507
"""The only server error that is allowed: the disk is full."""
HANGING_PORT = 47_811
"""Port of an endpoint that accepts connections and never answers, for webhooks."""
W = "/v3/workspaces/w"
_numbers = itertools.count()


def bomb_pdf(operators: int = 120_000) -> bytes:
    """Return a small PDF whose only page decompresses to a very large one."""
    drawn = zlib.compress(b"BT /F1 12 Tf " + b"1 0 0 1 10 10 Tm (hi) Tj " * operators + b"ET", 9)
    things = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 5 0 R /Resources << /Font << /F1 4 0 R >> >> >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(drawn), drawn),
    ]
    out, places = b"%PDF-1.4\n", b"0000000000 65535 f \n"
    for number, thing in enumerate(things, start=1):
        places += b"%010d 00000 n \n" % len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, thing)
    return out + b"xref\n0 6\n%strailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (places, len(out))


BOMB = bomb_pdf()
JSON = {"Content-Type": "application/json"}
NUMBERS = json.dumps(list(range(200_000))).encode()
LONG_QUERY = json.dumps({"query": "x7k" * 340_000}).encode()
Call = Callable[[httpx.Client], httpx.Response]


def _upload(client: httpx.Client) -> httpx.Response:
    files = {"file": ("bomb.pdf", BOMB, "application/pdf")}
    return client.post(f"{W}/sessions/pdf/messages/upload", files=files, data={"peer_id": "eve"})


def _conclude(client: httpx.Client) -> httpx.Response:
    new = [{"content": words(1300)[:8000], "observer_id": "p0", "observed_id": "p0"} for _ in range(100)]
    return client.post(f"{W}/conclusions", json={"conclusions": new})


def _join(client: httpx.Client) -> httpx.Response:
    number = next(_numbers)
    return client.post(f"{W}/sessions/m{number}/peers", json={f"m{number}-{n}": {} for n in range(20_000)})


def _hook(client: httpx.Client) -> httpx.Response:
    client.post(f"{W}/webhooks", json={"url": f"http://hook{next(_numbers) % 10}.example:{HANGING_PORT}/"})
    return client.get(f"{W}/webhooks/test")


def _filter_bomb() -> dict[str, Any]:
    return {"OR": [{"metadata": {f"key{n}": {"contains": "nothing"}}} for n in range(60)]}


ATTACKS: dict[str, Call] = {
    "long query": lambda c: c.post(f"{W}/search", json={"query": "x7k" * 3333}),
    "longer query": lambda c: c.post(f"{W}/search", content=LONG_QUERY, headers=JSON),
    "filtered search": lambda c: c.post(f"{W}/search", json={"query": "item", "filters": _filter_bomb()}),
    "filtered list": lambda c: c.post(f"{W}/sessions/s0/messages/list", json={"filters": _filter_bomb()}),
    "PDF": _upload,
    "conclusions": _conclude,
    "members": _join,
    "numbers": lambda c: c.request("DELETE", f"{W}/sessions/s0/peers", content=NUMBERS, headers=JSON),
    "webhooks": _hook,
    "clone": lambda c: c.post(f"{W}/sessions/s0/clone"),
}


def _says() -> dict[str, Any]:
    return {"messages": [{"content": f"I keep {words(12)}.", "peer_id": "p0"}]}


ORDINARY: dict[str, Call] = {
    "message": lambda c: c.post(f"{W}/sessions/s1/messages", json=_says()),
    "search": lambda c: c.post(f"{W}/search", json={"query": words(3)}),
    "context": lambda c: c.get(f"{W}/sessions/s1/context?tokens=2000"),
    "list": lambda c: c.post(f"{W}/sessions/s1/messages/list", json={"filters": {"metadata": {"kind": "none"}}}),
    "representation": lambda c: c.post(f"{W}/peers/p0/representation", json={"search_query": words(3)}),
}
"""The calls of an ordinary client, in turn."""


@dataclass
class Seen:
    """Measurements of the server."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    health: list[float] = field(default_factory=list)
    resident: float = 0.0

    def wrong(self) -> dict[tuple[str, int], int]:
        """Return server errors, and calls without an answer (0)."""
        return {
            key: n for key, n in self.statuses.items() if key[1] == 0 or (key[1] >= 500 and key[1] != DISK_FULL_STATUS)
        }


def ordinary(url: str, count: int, seen: Seen) -> dict[str, list[float]]:
    """Durations of an ordinary client's calls, by kind."""
    taken: dict[str, list[float]] = {kind: [] for kind in ORDINARY}
    with httpx.Client(base_url=url, timeout=60) as client:
        for kind in itertools.islice(itertools.cycle(ORDINARY), count):
            start = time.perf_counter()
            seen.statuses["ordinary", ORDINARY[kind](client).status_code] += 1
            taken[kind].append(time.perf_counter() - start)
    return taken


def rows_of(name: str, taken: Mapping[str, Sequence[float]], against: Sequence[Row] = ()) -> list[Row]:
    """Return a row of all calls, and one of each kind; `against` has the rows to compare with."""
    parts = {name: list(itertools.chain(*taken.values())), **{f"  {kind}": part for kind, part in taken.items()}}
    return [summarise(kind, part, base) for (kind, part), base in itertools.zip_longest(parts.items(), against)]


def _attack(url: str, name: str, over: Any, told: Any) -> None:
    with httpx.Client(base_url=url, timeout=120) as client:
        while not over.is_set():
            try:
                status = ATTACKS[name](client).status_code
            except httpx.HTTPError:
                status = 0
            if not over.is_set():
                told.put((name, status))


def attack(url: str, over: Any, told: Any) -> None:
    """Run all attacks in parallel until the event is set."""
    threads = [
        threading.Thread(target=_attack, args=(url, [*ATTACKS][number % len(ATTACKS)], over, told), daemon=True)
        for number in range(ATTACKER_COUNT)
    ]
    for thread in threads:
        thread.start()
    over.wait()


@contextmanager
def attacked(url: str, seen: Seen) -> Iterator[None]:
    """Run attackers in a separate process, so that they take no time from the measurement."""
    context = multiprocessing.get_context("spawn")
    over, told = context.Event(), context.Queue()
    process = context.Process(target=attack, args=(url, over, told))
    process.start()
    seen.statuses[told.get(timeout=60)] += 1  # they have begun
    try:
        yield
    finally:
        over.set()
        while not told.empty():
            seen.statuses[told.get()] += 1
        process.join(5)
        process.kill()


@contextmanager
def hanging() -> Iterator[None]:
    """Run an endpoint that accepts every connection and answers none."""
    with socket.create_server(("127.0.0.1", HANGING_PORT), backlog=1000):
        yield


@contextmanager
def watched(url: str, pid: int, seen: Seen) -> Iterator[None]:
    """Request health and read the memory ten times a second in a separate process, so that nothing delays it."""
    context = multiprocessing.get_context("spawn")
    over, told = context.Event(), context.Queue()
    process = context.Process(target=_watch, args=(url, pid, over, told))
    process.start()
    first = told.get(timeout=60)  # it has begun
    try:
        yield
    finally:
        over.set()
        for status, taken, resident in itertools.chain([first], iter(lambda: told.get(timeout=60), None)):
            seen.statuses["health", status] += 1
            seen.health.append(taken)
            seen.resident = max(seen.resident, resident)
        process.join()


def _watch(url: str, pid: int, over: Any, told: Any) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:
        while not over.wait(0.1):
            start = time.perf_counter()
            status = client.get("/health").status_code
            told.put((status, time.perf_counter() - start, _resident(pid)))
    told.put(None)


def _resident(pid: int) -> float:
    """Return the megabytes of a process and its children."""
    total = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = status.read_text(encoding="utf-8")
        except OSError:  # it has ended
            continue
        parent = re.search(r"PPid:\s+(\d+)", fields)
        if (status.parent.name == str(pid) or (parent and parent[1] == str(pid))) and (
            found := re.search(r"VmRSS:\s+(\d+)", fields)
        ):
            total += int(found[1]) / 1024
    return total


def fill(url: str, count: int) -> None:
    """Store messages of twenty people in twenty sessions, with metadata."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for batch in range(-(-count // 100)):
            number = batch % 20
            says = [
                {"content": f"I keep item {batch} in {words(22)}.", "peer_id": f"p{number}", "metadata": {"n": n}}
                for n in range(100)
            ]
            client.post(f"{W}/sessions/s{number}/messages", json={"messages": says}).raise_for_status()


def end_under_attack(process: subprocess.Popen[str], url: str) -> float:
    """Measure the server's shutdown during an attack. Calls that it cuts off do not count as failures."""
    with attacked(url, Seen()):
        time.sleep(2)  # all attacks are under way
        start = time.perf_counter()
        process.terminate()
        process.wait(60)
        return time.perf_counter() - start


def run() -> None:
    """Measure without and with attacks in turn; report medians of the runs."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hermes-bench") as folder, hanging():
        process, url, _ = serve(folder, "bench.hostile_server")
        alone, under, quiet = Seen(), Seen(), []
        attacked_p95: list[float] = []
        try:
            fill(url, MESSAGES)
            for number in range(RUNS):
                first = rows_of(f"alone {number}", ordinary(url, CALLS, alone))
                with attacked(url, under), watched(url, process.pid, under):
                    second = rows_of(f"attacked {number}", ordinary(url, CALLS, under), first)
                rows += [*first, *second]
                quiet.append(first[0].p95)
                attacked_p95.append(second[0].p95)
            ended = end_under_attack(process, url)
        finally:
            process.kill()
            process.wait()
    rows.append(summarise("health while attacked", under.health))
    report("Hostile: twenty attackers", rows)
    longer = sorted(b - a for a, b in zip(quiet, attacked_p95, strict=True))[len(quiet) // 2]
    print(  # noqa: T201
        f"  p95 {longer * 1000:+.0f} ms, health at most {max(under.health) * 1000:.0f} ms, "
        f"resident {under.resident:.0f} MB, ended after {ended:.1f} s, errors {under.wrong() or 'none'}"
    )
    for (name, status), count in sorted(under.statuses.items()):
        print(f"    {name:<16} {status} × {count}")  # noqa: T201


SECRET = "a secret of the bench, which is long enough for HS256"  # noqa: S105
UNREAD_CONNECTION_COUNT = 200
MAX_MESSAGE_CHARS = 25_000
"""Length of the longest message."""
MESSAGES_PATH = f"{W}/sessions/s/messages"


def _said(text: str, count: int) -> bytes:
    return json.dumps({"messages": [{"content": text, "peer_id": "p"}] * count}).encode()


def _schema(properties: int) -> bytes:
    wanted = {f"f{n}": {"type": "array"} for n in range(properties)}
    return json.dumps({"query": "item", "response_format": {"type": "object", "properties": wanted}}).encode()


def _names(count: int) -> bytes:
    return b"{" + b",".join(b'"n%d":1' % n for n in range(count)) + b"}"


BOUNDS: dict[str, tuple[str, bytes, bool]] = {
    "schema of 36,000 properties": (f"{W}/peers/p/chat", _schema(36_000), True),
    "schema of 100 properties": (f"{W}/peers/p/chat", _schema(100), True),
    "16 MB of lists, no key": (MESSAGES_PATH, b"[" + b"[]," * 5_500_000 + b"[]]", False),
    "16 MB of lists": (MESSAGES_PATH, b"[" + b"[]," * 5_500_000 + b"[]]", True),
    "16 MB of names": (MESSAGES_PATH, _names(1_300_000), True),
    "16 MB of one text": (MESSAGES_PATH, _said("x" * 16_000_000, 1), True),
    "16 MB of escapes": (MESSAGES_PATH, b'{"messages": "' + b"\\u0001" * 2_700_000 + b'"}', True),
    "50,000 values in 4 MB": (MESSAGES_PATH, b'{"messages": [' + b",".join([b"%80d" % 1] * 49_000) + b"]}", True),
    "a message of blanks": (MESSAGES_PATH, _said(" " * MAX_MESSAGE_CHARS, 1), True),
    "40 messages of blanks": (MESSAGES_PATH, _said(" " * MAX_MESSAGE_CHARS, 40), True),
    "100 messages without blanks": (MESSAGES_PATH, _said("x7k" * (MAX_MESSAGE_CHARS // 3), 100), True),
}
"""Path, body, and whether the request has a key."""


def _send(url: str, path: str, body: bytes, key: str | None) -> int:
    headers = {**JSON, **({} if key is None else {"Authorization": f"Bearer {key}"})}
    try:
        return httpx.post(url + path, content=body, headers=headers, timeout=300).status_code
    except httpx.WriteError:  # refused and closed before all was sent
        return 0


def leave_unread(url: str, key: str, count: int) -> Counter[int]:
    """Request a page of the longest messages on many connections, and read only the status."""
    place = urlsplit(url)
    head = f"POST {MESSAGES_PATH}/list?size=100 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
    open_: list[socket.socket] = []
    try:
        for _ in range(count):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.connect((place.hostname, place.port))
            client.sendall(head.encode())
            open_.append(client)
        statuses = Counter(int(client.recv(12)[9:]) for client in open_)
        time.sleep(3)  # so that the memory that they hold is seen
        return statuses
    finally:
        for client in open_:
            client.close()


def _bounds_row(url: str, pid: int, name: str, at_once: int, send: Callable[[], Counter[int]]) -> None:
    seen, before = Seen(), _resident(pid)
    statuses: Counter[int] = Counter()
    with watched(url, pid, seen):
        start = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            for part in pool.map(lambda _: send(), range(at_once)):
                statuses += part
        seconds = time.perf_counter() - start
        time.sleep(1)
    told = ", ".join(f"{status} x {count}" for status, count in sorted(statuses.items()))
    print(  # noqa: T201
        f"  {name:<30} x {at_once}: health at most {max(seen.health) * 1000:5.0f} ms, "
        f"memory {seen.resident - before:+5.0f} MB, {seconds:5.1f} s, {told}"
    )


def run_bounds() -> None:
    """Send the largest requests alone and four times at once."""
    os.environ |= {"AUTH_USE_AUTH": "true", "AUTH_JWT_SECRET": SECRET}
    key = make_key(ADMIN, SECRET, time.time_ns() // 1000, None)
    with tempfile.TemporaryDirectory(prefix="hermes-bench") as folder:
        process, url, _ = serve(folder)
        try:
            for _ in range(10):
                _send(url, MESSAGES_PATH, _said("I keep item " + words(5000)[: MAX_MESSAGE_CHARS - 20], 10), key)
            print("Bounds: the largest requests")  # noqa: T201
            for at_once in (1, 4):
                for name, (path, body, has_key) in BOUNDS.items():
                    given = key if has_key else None
                    _bounds_row(
                        url,
                        process.pid,
                        name,
                        at_once,
                        lambda: Counter([_send(url, path, body, given)]),  # noqa: B023
                    )
            _bounds_row(
                url, process.pid, "200 unread pages", 1, lambda: leave_unread(url, key, UNREAD_CONNECTION_COUNT)
            )
        finally:
            process.kill()
            process.wait()
