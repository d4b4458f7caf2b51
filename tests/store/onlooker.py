"""Processes that check a store while others write: one reads conversations, one checks the file as a doctor does. Each
repeats until its stdin ends, fails at the first error, and prints the number of rounds."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

from hermes.clock import SystemClock
from hermes.db.engine import Tx
from hermes.store.store import Store
from tests.store.appender import SHARED


async def read_once(path: Path) -> None:
    """Check one snapshot of the shared session: its message count is right, and no writer's messages have a gap."""
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:

        def look(tx: Tx) -> tuple[int, list[str]]:
            counted = store.sessions.get(tx, SHARED).message_count
            return counted, [message.content or "" for message in store.messages.history(tx, SHARED)]

        for _ in range(20):
            counted, contents = await store.read(look)
            assert counted == len(contents)
            check_order(contents)


def check_order(contents: list[str]) -> None:
    """Check that each writer's numbers in the shared session are 0, 4, 8, …"""
    seen: dict[str, list[int]] = defaultdict(list)
    for content in contents:
        writer, number = content.split()
        seen[writer].append(int(number))
    for numbers in seen.values():
        assert numbers == list(range(0, 4 * len(numbers), 4))


async def examine_once(path: Path) -> None:
    """Do what a doctor does: open the file, check all of it, list the sessions, and close it."""
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        verdict = await store.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchone()[0])
        assert verdict == "ok", verdict
        assert await store.read(lambda tx: store.sessions.recent(tx, limit=50))


async def go_round(once: Callable[[Path], Awaitable[None]], path: Path) -> int:
    """Repeat `once` until stdin ends, at least one time."""
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    rounds = 0
    while rounds == 0 or not ended.done():
        await once(path)
        rounds += 1
    return rounds


if __name__ == "__main__":
    ROLES = {"read": read_once, "examine": examine_once}
    print(asyncio.run(go_round(ROLES[sys.argv[2]], Path(sys.argv[1]))))  # noqa: T201
