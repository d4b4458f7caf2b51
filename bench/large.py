"""Measures a large workspace: `nice python -m bench.large [SIZE ...]`, by default 22,000, 200,000 and 1,000,000
messages.

For each size a folder is filled and then served by a process of its own: the first search after a start, searches of a
workspace, a session and a peer, the first search after one message was deleted, adding, and the memory that it takes. A
million takes some five minutes and 3 GB of disk.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench.memory_server import TALK_SIZE, resident, serve, words
from bench.table import Row, report, summarise, time_calls
from hermes.memory_server.db.schema import open_for_work
from hermes.memory_server.engine.messages import MessageDraft, append_messages, prepare_drafts
from hermes.memory_server.engine.word_vectors import WordVectors

SIZES = (22_000, 200_000, 1_000_000)
START_EPOCH_MICROSECONDS = 1_700_000_000_000_000
WORKSPACE = "large"
ROOT = f"/v3/workspaces/{WORKSPACE}"


async def fill(folder: Path, size: int) -> None:
    """Store `size` messages in sessions of 1,000, without background work."""
    database, embedder = open_for_work(folder), WordVectors()
    quiet = {"reasoning": {"enabled": False}, "summary": {"enabled": False}}
    for start in range(0, size, TALK_SIZE):
        drafts = [
            MessageDraft(f"I keep item {start + n} in {words(22)}.", f"p{start // TALK_SIZE}", configuration=quiet)
            for n in range(min(TALK_SIZE, size - start))
        ]
        ready = await prepare_drafts(embedder, drafts)
        await database.write(
            lambda tx, ready=ready, start=start: append_messages(
                tx, WORKSPACE, f"s{start // TALK_SIZE}", ready, START_EPOCH_MICROSECONDS + start
            )  # type: ignore[misc]
        )
    await database.close()


def measure(folder: Path, size: int) -> tuple[list[Row], str]:
    """Return the rows of one size, and the memory."""
    process, url, _ = serve(str(folder))
    try:
        with httpx.Client(base_url=url, timeout=120) as client:
            rows = _rows(client, size)
        memory = resident(process.pid)
    finally:
        process.terminate()
        process.wait()
    disk = sum(path.stat().st_size for path in folder.iterdir())
    return rows, f"  N = {size:,}: resident {memory:.0f} MB, disk {disk / 1e6:.0f} MB"


def _rows(client: httpx.Client, size: int) -> list[Row]:
    def search(place: str = "") -> None:
        client.post(f"{ROOT}{place}/search", json={"query": words(3), "limit": 10}).raise_for_status()

    def add() -> None:
        said = [{"content": f"I also keep {words(22)}.", "peer_id": "p0"}]
        client.post(f"{ROOT}/sessions/s0/messages", json={"messages": said}).raise_for_status()

    rows = [summarise(f"first search after the start, N = {size:,}", time_calls(search, 1))]
    time_calls(search, 20)
    time.sleep(max(2.0, size / 50_000))  # what is read in the background
    time_calls(search, 20)
    rows.append(summarise(f"search workspace, N = {size:,}", time_calls(search, 100)))
    rows.append(summarise(f"search session, N = {size:,}", time_calls(lambda: search("/sessions/s0"), 100)))
    rows.append(summarise(f"search peer, N = {size:,}", time_calls(lambda: search("/peers/p0"), 100)))
    rows.append(summarise(f"add 1, N = {size:,}", time_calls(add, 50)))
    after: list[float] = []
    for number in range(10):
        listed = client.post(f"{ROOT}/sessions/s{number}/messages/list", json={}).json()["items"]
        client.delete(f"{ROOT}/ext/sessions/s{number}/messages/{listed[0]['id']}").raise_for_status()
        after += time_calls(search, 1)
    rows.append(summarise(f"first search after a deletion, N = {size:,}", after))
    return rows


def run(sizes: tuple[int, ...]) -> None:
    """Measure all sizes, one after another."""
    rows: list[Row] = []
    told: list[str] = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=Path.cwd() / "bench") as folder:
            asyncio.run(fill(Path(folder), size))
            for _ in range(2):  # the second start finds what the first kept
                found, memory = measure(Path(folder), size)
            rows += found
            told.append(memory)
    report("Large: one workspace over loopback", rows)
    print("\n".join(told))  # noqa: T201


if __name__ == "__main__":
    run(tuple(int(size) for size in sys.argv[1:]) or SIZES)
