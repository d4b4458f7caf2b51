"""A process that takes one lease again and again, and logs each acquisition and release."""

from __future__ import annotations

import asyncio
import random
import sys
from functools import partial
from pathlib import Path

from hermes.clock import SystemClock
from hermes.db import leases
from hermes.db.engine import StoreDatabase, Tx
from hermes.db.leases import Lease

DIARY = "INSERT INTO diary (epoch, what) VALUES (?, ?)"


async def fight(path: Path, owner: str, count: int) -> int:
    """Hold the lease `count` times. Acquiring and releasing are separate transactions."""
    db, clock, chance = StoreDatabase(path, lock_timeout=30.0), SystemClock(), random.Random(owner)

    def enter(tx: Tx) -> Lease | None:
        lease = leases.acquire(tx, "x", owner, ttl=60.0, now=clock.now())
        if lease is not None:
            tx.execute(DIARY, (lease.epoch, "in"))
        return lease

    def leave(tx: Tx, lease: Lease) -> None:
        tx.execute(DIARY, (lease.epoch, "out"))
        leases.release(tx, lease)

    print("ready", flush=True)  # noqa: T201 - what the parent waits for
    await asyncio.to_thread(sys.stdin.readline)
    won = 0
    while won < count:
        lease = await db.write(enter)
        if lease is None:
            await clock.sleep(chance.uniform(0.0, 0.005))
            continue
        await db.write(partial(leave, lease=lease))
        won += 1
    await db.close()
    return won


if __name__ == "__main__":
    print(asyncio.run(fight(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))  # noqa: T201
