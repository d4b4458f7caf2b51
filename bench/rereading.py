"""Measures the migration of an earlier version's home beside a client: `python -m bench.rereading [MESSAGES]`.

Two servers serve copies of the same folder: one migrates it, the other is idle. A client calls both in turn.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path

import httpx

from bench.reading import load
from hermes.memory_server.db.schema import FILE
from hermes.memory_server.engine.conclusions import digest
from tests.memory_server.serving import inside, running

MESSAGE_COUNT = 40_000
COMPARED_TURN_COUNT = 150
"""Number of compared turns: each adds a message, searches, and reads a context."""
SEEN = Path(__file__).with_name("reading_seen.jsonl")


def make_old(folder: Path, count: int) -> None:
    """Make a home of version 18 in which every message that an old rule would keep has a conclusion."""
    with running(folder) as served, inside(served, "lab") as client:
        client.post("/sessions/s/messages", json={"messages": [{"content": "hello", "peer_id": "ann"}]})
    said = [f"{label.text} ({number})" for number, label in enumerate(islice(cycle(load(SEEN)), count))]
    names = "id, public_id, workspace_id, session_id, peer_id, token_count, seq, content, created_at"
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        query = "INSERT INTO collections (id, workspace_id, observer_id, observed_id) VALUES (1, 1, 1, 1)"
        file.execute(query)
        rows = [(n, f"m{n}", n, text, 1_700_000_000_000_000 + n * 1_000_000) for n, text in enumerate(said, 2)]
        file.executemany(f"INSERT INTO messages ({names}) VALUES (?, ?, 1, 1, 1, 9, ?, ?, ?)", rows)
        vector = "INSERT INTO message_vectors (workspace_id, message_id, piece, session_id, peer_id, vector, said_at)"
        file.executemany(f"{vector} VALUES (1, ?, 0, 1, 1, zeroblob(512), ?)", [(row[0], row[4]) for row in rows])
        file.execute("INSERT INTO message_index (rowid, scope, content) SELECT id, scope, content FROM message_texts")
        file.execute("UPDATE sessions SET message_count = ?", (len(rows) + 1,))
        columns = "id, public_id, workspace_id, collection_id, session_id, content, digest, created_at, vector"
        held = list(conclusions(rows))
        file.executemany(f"INSERT INTO conclusions ({columns}) VALUES (?, ?, 1, 1, 1, ?, ?, ?, zeroblob(512))", held)
        links = [(int(row[1][1:]), row[0]) for row in held]
        file.executemany("INSERT INTO conclusion_messages (message_id, conclusion_id) VALUES (?, ?)", links)
        file.execute("UPDATE alembic_version SET version_num = '0018'")


def conclusions(rows: list[tuple[int, str, int, str, int]]) -> Iterator[tuple[int, str, str, str, int]]:
    """Yield a conclusion for every message with the word `I`, as rules of earlier versions kept them."""
    kept = (row for row in rows if row[3].startswith(("I ", "I'", "My ", "We ")))
    for number, (message, _, _, text, at) in enumerate(kept, 1):
        content = f"ann: {text}"
        yield number, f"c{message}", content, digest(content), at


def turn(client: httpx.Client, number: int) -> float:
    """Return the seconds of one turn."""
    begin = time.perf_counter()
    said = {"content": f"The harbour was quiet on day {number}.", "peer_id": "ben"}
    client.post("/sessions/other/messages", json={"messages": [said]}).raise_for_status()
    client.post("/search", json={"query": "which trains do I take", "limit": 10}).raise_for_status()
    client.get("/sessions/other/context", params={"tokens": 500}).raise_for_status()
    return time.perf_counter() - begin


def main() -> None:
    """Make the homes, and compare."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGE_COUNT
    with tempfile.TemporaryDirectory() as name:
        busy, idle = Path(name) / "busy", Path(name) / "idle"
        make_old(busy, count)
        shutil.copytree(busy, idle)
        with running(idle, "--no-worker") as served:  # it makes the newest schema and the marks
            served.client().get("/health")
        with closing(sqlite3.connect(idle / FILE)) as file, file:
            file.execute("DELETE FROM meta WHERE name LIKE 'reread:%'")
            file.execute("DELETE FROM jobs WHERE kind = 'reread'")
        with (
            running(busy) as served, running(idle) as other,
            inside(served, "lab") as first, inside(other, "lab") as second,
        ):  # fmt: skip
            compare(first, second, busy)


def compare(busy: httpx.Client, idle: httpx.Client, folder: Path) -> None:
    """Print the duration of turns during the migration, and the duration of the migration."""
    for client in (busy, idle):
        turn(client, 0)
    begin, before = time.monotonic(), left(folder)
    times = [(turn(busy, number), turn(idle, number)) for number in range(COMPARED_TURN_COUNT)]
    seconds, done = time.monotonic() - begin, before - left(folder)
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    tails = [sorted(column)[int(COMPARED_TURN_COUNT * 0.95)] for column in zip(*times, strict=True)]
    for label, (own, others) in (("median", medians), ("95th percentile", tails)):
        print(f"{label}: {own * 1e3:.1f} ms a turn, {others * 1e3:.1f} without: {own / others - 1:+.0%}")  # noqa: T201
    while left(folder):
        time.sleep(0.5)
    whole = time.monotonic() - begin
    print(f"{done} of {before} rows in {seconds:.0f} s beside the client, all in {whole:.0f} s")  # noqa: T201


def left(folder: Path) -> int:
    """Return the number of rows that are still to be migrated."""
    with closing(sqlite3.connect(folder / FILE, timeout=30)) as file:
        marks = file.execute("SELECT value FROM meta WHERE name LIKE 'reread:%'").fetchall()
    return sum(int(until) - int(after) for after, until in (value.split(":") for (value,) in marks))


if __name__ == "__main__":
    main()
