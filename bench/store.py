"""Measures append and live view while the store and one session grow, and a turn's reads of a long uncompressed
session, against a bare SQLite insert in the same run."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.table import Row, report, summarise
from hermes.agent.context import build_context
from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.llm.tokens import estimate_request, view_tokens
from hermes.store.ids import snapshot_id
from hermes.store.store import Store
from hermes.types import Compression, Draft, LiveView

SIZES = (100, 10_000, 1_000_000)
CALL_COUNT = 200
UNCOMPRESSED = (1_000, 10_000)
READ_COUNT = 50
TAIL_COUNT = 40
TEXT = "I collect stamps from Malta and sometimes from Gozo. " * 4


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        rows = [_bare_insert(Path(folder) / "bare.db")]
        for size in SIZES:
            rows += asyncio.run(_at_size(Path(folder) / f"{size}.db", size, rows[0]))
        for size in UNCOMPRESSED:
            rows += asyncio.run(_uncompressed(Path(folder) / f"whole{size}.db", size, rows[0]))
    report("Store: append and live view in a session of N messages", rows)


def _bare_insert(path: Path) -> Row:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text)")
    taken: list[float] = []
    for _ in range(CALL_COUNT):
        start = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (text) VALUES (?)", (TEXT,))
        connection.execute("COMMIT")
        taken.append(time.perf_counter() - start)
    connection.close()
    return summarise("bare SQLite insert + commit", taken)


async def _at_size(path: Path, size: int, baseline: Row) -> list[Row]:
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        session = (await store.create_session("cli")).id
        await store.write(lambda tx: _fill(tx, session, size))
        await store.write(lambda tx: store.compressions.commit(tx, _compression(tx, session)))
        append = await _time(lambda: store.append(session, Draft("user", TEXT)))
        view = await _time(lambda: store.view(session))
        many = await _time(lambda: asyncio.gather(*(store.append(session, Draft("user", TEXT)) for _ in range(32))), 20)
    return [
        summarise(f"append, N = {size:,}", append, baseline),
        summarise(f"32 appends at once, N = {size:,}", many, baseline),
        summarise(f"live view ({TAIL_COUNT + CALL_COUNT} after the horizon), N = {size:,}", view, baseline),
    ]


async def _uncompressed(path: Path, size: int, baseline: Row) -> list[Row]:
    """Measure the reads of a turn's first request, and of each later one."""
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        session = (await store.create_session("cli")).id
        await store.write(lambda tx: _fill(tx, session, size))
        seen = await store.view(session)
        await store.append(session, Draft("user", TEXT))
        whole = await _time(lambda: store.view(session), READ_COUNT)
        later = await _time(lambda: store.view_since(seen), READ_COUNT)
        built = await _time(lambda: _build(seen), READ_COUNT)
    return [
        summarise(f"view of {size:,} uncompressed", whole, baseline),
        summarise(f"one message more than {size:,}", later, baseline),
        summarise(f"request of {size:,}, built and counted", built, baseline),
    ]


async def _build(seen: LiveView) -> None:
    estimate_request(build_context("prompt", seen))
    view_tokens(seen)


def _fill(tx: Tx, session: str, size: int) -> None:
    rows = ((session, "assistant" if n % 2 else "user", TEXT, float(n)) for n in range(size))
    tx.executemany("INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", rows)


def _compression(tx: Tx, session: str) -> Compression:
    last = int(tx.execute("SELECT max(id) FROM messages").fetchone()[0])
    horizon = last - TAIL_COUNT
    return Compression(session, 1, horizon, last, (1,), "a summary", snapshot_id(session, 1.0), 1.0)


async def _time(call: Callable[[], Awaitable[object]], count: int = CALL_COUNT) -> list[float]:
    taken: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - start)
    return taken
