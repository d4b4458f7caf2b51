"""A process that appends until it is killed, and says which messages it was told are stored.

It opens the store when its stdin says so, and then appends one message, five at once (which share a commit), one, …
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Draft

TOGETHER = 5


async def append_for_ever(path: Path, session_id: str) -> None:
    """Never returns."""
    print("ready", flush=True)  # noqa: T201 - what the parent waits for
    await asyncio.to_thread(sys.stdin.readline)
    store = await Store.open(path, clock=SystemClock(), lock_timeout=30.0)
    await store.create_session("test", session_id=session_id)
    following = 0
    for turn in count():
        numbers = range(following, following + (TOGETHER if turn % 2 else 1))
        await asyncio.gather(*(store.append(session_id, Draft("user", str(number))) for number in numbers))
        sys.stdout.write("".join(f"{number}\n" for number in numbers))
        sys.stdout.flush()
        following = numbers.stop


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1]), sys.argv[2]))
