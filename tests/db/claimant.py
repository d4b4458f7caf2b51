"""A process that holds a lane under its own owner name, prints the name, and stays until its stdin ends."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from hermes.db import lanes
from hermes.db.engine import StoreDatabase
from hermes.db.leases import new_owner


async def hold(path: Path, queue: str, lane: str) -> None:
    """Holds a lane for an hour."""
    db, owner = StoreDatabase(path, lock_timeout=5.0), new_owner()
    lease = await db.write(lambda tx: lanes.hold_lane(tx, queue, lane, owner, ttl=3600.0, now=time.time()))
    assert lease is not None
    print(owner, flush=True)  # noqa: T201 - what the parent waits for
    await asyncio.to_thread(sys.stdin.read)
    await db.close()


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1]), *sys.argv[2:]))
