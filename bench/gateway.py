"""Measures the gateway's part of a turn: from a client's request to the model's, over real processes and sockets."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.table import Row, report, summarise

TURN_COUNT = 200
SESSION_COUNT = 64
LIVE_COUNT = 1000
HISTORIES = (10, 1_000, 10_000)
TAIL_COUNT = 40
TEXT = "I collect stamps from Malta."


@dataclass(frozen=True)
class Bench:
    """A running gateway and its model."""

    home: Path
    host: str
    port: int
    model_port: int
    pid: int

    def memory(self) -> float:
        """Return the gateway's resident memory in MB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Client:
    """A minimal client with one connection."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def open(self) -> Client:
        self._reader, self._writer = await asyncio.open_connection(self._bench.host, self._bench.port)
        return self

    async def ask(self, path: str, body: bytes = b"", headers: str = "") -> tuple[float, float]:
        """Return when the request was sent and when its answer was read."""
        method = "POST" if body else "GET"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        begun = time.monotonic()
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        assert " 200 " in answer, answer
        length = int(answer.partition("content-length:")[2].partition("\r\n")[0])
        await self._reader.readexactly(length)
        return begun, time.monotonic()

    async def say(self, session: str, text: str) -> tuple[float, float]:
        body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
        return await self.ask("/v1/chat/completions", body, f"X-Hermes-Session-Id: {session}\r\n")

    def close(self) -> None:
        self._writer.close()


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, running(Path(folder) / "home", "none") as bench:
        rows = asyncio.run(_measure(bench))
    report("Gateway: from request to the model's request", rows)


async def _measure(bench: Bench) -> list[Row]:
    client = await Client(bench).open()
    idle = bench.memory()
    floor = summarise("no-op route (GET /health), there and back", await _noop(client))
    rows = [floor]
    for size in HISTORIES:
        for compressed in (False, True):
            if size == HISTORIES[0] and compressed:
                continue
            name = f"h{size}{compressed}"
            _fill(bench.home, name, size, compressed=compressed)
            label = f"history of {size:,}{', compressed' if compressed else ''}"
            rows.append(summarise(f"1 session, {label}", await _one_by_one(bench, client, name), floor))
    reached, rate = await _at_once(bench)
    rows.append(summarise(f"{SESSION_COUNT} sessions at once", reached, floor))
    rows.append(Row(f"seconds per turn, {SESSION_COUNT} sessions ({rate:.0f} turns/s)", 1 / rate, 1 / rate))
    await _live(bench)
    print(f"\nMemory: {idle:.0f} MB idle, {bench.memory():.0f} MB with {LIVE_COUNT:,} live sessions")  # noqa: T201
    client.close()
    return rows


async def _noop(client: Client) -> list[float]:
    times = [await client.ask("/health") for _ in range(TURN_COUNT)]
    return [end - begun for begun, end in times]


async def _one_by_one(bench: Bench, client: Client, session: str) -> list[float]:
    sent = {f"{session} {turn}": (await client.say(session, f"{session} {turn}"))[0] for turn in range(TURN_COUNT // 2)}
    arrivals = await ask_arrivals(bench)
    return [arrivals[text] - begun for text, begun in sent.items()]


async def _at_once(bench: Bench) -> tuple[list[float], float]:
    sent: dict[str, float] = {}

    async def talk(number: int) -> None:
        client = await Client(bench).open()
        for turn in range(10):
            text = f"at once {number} {turn}"
            sent[text], _ = await client.say(f"c{number}", text)
        client.close()

    await asyncio.gather(*(talk(number) for number in range(SESSION_COUNT)))  # warm: agents and prompts are made
    sent.clear()
    begun = time.monotonic()
    await asyncio.gather(*(talk(number) for number in range(SESSION_COUNT)))
    rate = SESSION_COUNT * 10 / (time.monotonic() - begun)
    arrivals = await ask_arrivals(bench)
    return [arrivals[text] - at for text, at in sent.items()], rate


async def _live(bench: Bench) -> None:
    async def talk(first: int) -> None:
        client = await Client(bench).open()
        for number in range(first, LIVE_COUNT, 20):
            await client.say(f"live{number}", f"live {number}")
        client.close()

    await asyncio.gather(*(talk(first) for first in range(20)))


async def ask_arrivals(bench: Bench) -> dict[str, float]:
    """Return when each text reached the model."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.model_port, limit=2**26)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    found: dict[str, float] = json.loads(await reader.readexactly(int(head.rpartition(":")[2])))
    writer.close()
    return found


def _fill(home: Path, session: str, size: int, *, compressed: bool) -> None:
    """Create a session with a history, as a gateway would have left it."""
    with closing(sqlite3.connect(home / "state.db", timeout=30)) as db, db:
        db.execute("INSERT INTO sessions (id, source, started_at) VALUES (?, 'api', 1)", (session,))
        said = ((session, "assistant" if n % 2 else "user", f"{TEXT} {n}", float(n)) for n in range(size))
        db.executemany("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", said)
        if compressed:
            last = db.execute("SELECT max(id) FROM messages").fetchone()[0]
            db.execute(
                "INSERT INTO hermes_compressions VALUES (?, 1, ?, ?, '[]', 'They talked.', ?, 1.0)",
                (session, last - TAIL_COUNT, last, f"{session}.snapshot.20260101T000000Z"),
            )


@contextmanager
def running(home: Path, provider: str) -> Iterator[Bench]:
    """Run a gateway with a memory provider, and a model for it."""
    model = subprocess.Popen([sys.executable, "-m", "bench.swift_model"], stdout=subprocess.PIPE, text=True)
    assert model.stdout is not None
    model_port = json.loads(model.stdout.readline())["port"]
    home.mkdir()
    settings = {
        "api": {"enabled": True, "port": 0},
        "model": {"base_url": f"http://127.0.0.1:{model_port}/v1", "default": "swift", "context_length": 10_000_000},
        "memory": {"review_every": 0, "provider": provider},
    }
    (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    gateway = subprocess.Popen(
        [sys.executable, "-m", "hermes", "gateway", "run"],
        env={**os.environ, "HERMES_HOME": str(home)},
        stderr=subprocess.DEVNULL,
    )
    try:
        host, _, port = wait_for_url(home).removeprefix("http://").partition("/")[0].partition(":")
        yield Bench(home, host, int(port), model_port, gateway.pid)
    finally:
        for process in (gateway, model):
            process.terminate()
            process.wait()
        model.stdout.close()


def wait_for_url(home: Path) -> str:
    """Return the address of the HTTP API of the gateway that starts in this home."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(0.05)
        if not (home / "state.db").exists():
            continue
        with closing(sqlite3.connect(home / "state.db")) as db:
            try:
                row = db.execute("SELECT detail FROM hermes_gateway_status WHERE state = 'ok'").fetchone()
            except sqlite3.OperationalError:
                continue
            if row:
                return str(row[0])
    raise TimeoutError("the gateway did not start")
