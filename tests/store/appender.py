"""A process that appends to three private sessions and a shared one, and prints the number of messages."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hermes.clock import SystemClock
from hermes.store.store import Store
from hermes.types import Draft

SHARED = "shared"
OWN_SESSIONS = 3


def session_of(writer: str, number: int) -> str:
    """Return the session of a writer's message with this number."""
    return SHARED if number % 4 == 0 else f"{writer}-{number % OWN_SESSIONS}"


async def append_all(path: Path, writer: str, count: int) -> int:
    """Append `count` messages, singly and sometimes four at once. Return the number of acknowledged ones."""
    async with await Store.open(path, clock=SystemClock(), lock_timeout=30.0) as store:
        for number in range(OWN_SESSIONS):
            await store.create_session("test", session_id=f"{writer}-{number}")
        print("ready", flush=True)  # noqa: T201 - what the parent waits for
        await asyncio.to_thread(sys.stdin.readline)
        number = 0
        while number < count:
            together = range(number, min(count, number + (4 if number % 20 == 0 else 1)))
            await asyncio.gather(
                *(store.append(session_of(writer, n), Draft("user", f"{writer} {n}")) for n in together)
            )
            number = together.stop
    return number


if __name__ == "__main__":
    print(asyncio.run(append_all(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))  # noqa: T201
