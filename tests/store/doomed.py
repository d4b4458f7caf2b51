"""A process that appends until it is killed, and prints the messages whose storage was acknowledged.

It opens the store when a line arrives on stdin. Then it appends one message, five at once (which share a commit),
three in one call (which are stored together or not at all), one, …
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
IN_ONE_CALL = 3
ROUND = 1 + TOGETHER + IN_ONE_CALL


async def append_for_ever(path: Path, session_id: str) -> None:
    """Append for ever."""
    print("ready", flush=True)  # noqa: T201 - what the parent waits for
    await asyncio.to_thread(sys.stdin.readline)
    store = await Store.open(path, clock=SystemClock(), lock_timeout=30.0)
    await store.create_session("test", session_id=session_id)
    for first in count(step=ROUND):
        numbers = [Draft("user", str(number)) for number in range(first, first + ROUND)]
        await store.append(session_id, numbers[0])
        acknowledge(numbers[:1])
        together = numbers[1 : 1 + TOGETHER]
        await asyncio.gather(*(store.append(session_id, draft) for draft in together))
        acknowledge(together)
        await store.append(session_id, *numbers[-IN_ONE_CALL:])
        acknowledge(numbers[-IN_ONE_CALL:])


def acknowledge(drafts: list[Draft]) -> None:
    sys.stdout.write("".join(f"{draft.content}\n" for draft in drafts))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1]), sys.argv[2]))
