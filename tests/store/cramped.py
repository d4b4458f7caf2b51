"""A process whose store runs out of space twice: by a file size limit, or on a disk that another file fills."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from hermes.clock import SystemClock
from hermes.errors import StoreFullError
from hermes.store.store import Store
from hermes.types import Draft

SESSION = "cramped"


def set_limit(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if size > 0 else hard, hard))


def cramp_by_limit(path: Path) -> Callable[[], None]:
    """Limit file sizes to 300 kB; return the function that lifts the limit."""
    set_limit(300_000)
    return lambda: set_limit(0)


def cramp_by_ballast(path: Path) -> Callable[[], None]:
    """Fill a third of the disk; return the function that empties it."""
    ballast = path.parent / "ballast"
    ballast.write_bytes(b"\0" * 400_000)
    return ballast.unlink


async def append_until_full(store: Store, stored: list[str]) -> None:
    """Append single messages, and batches that share a commit, until the disk is full; remember what was stored."""
    for turn in range(10_000):
        texts = [f"{len(stored) + number} {'x' * 2000}" for number in range(1 + turn % 3)]
        results = await asyncio.gather(
            *(store.append(SESSION, Draft("user", text)) for text in texts), return_exceptions=True
        )
        stored += [text for text, result in zip(texts, results, strict=True) if isinstance(result, list)]
        for error in (result for result in results if isinstance(result, BaseException)):
            assert isinstance(error, StoreFullError), repr(error)
            return
    raise AssertionError("it never got full")


async def check(store: Store, stored: list[str]) -> None:
    contents = await store.read(lambda tx: [m.content for m in store.messages.history(tx, SESSION)])
    assert contents == stored
    assert (await store.read(lambda tx: store.sessions.get(tx, SESSION))).message_count == len(stored)
    assert await store.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"


async def main(path: Path, cramp: Callable[[Path], Callable[[], None]]) -> None:
    stored: list[str] = []
    async with await Store.open(path, clock=SystemClock(), lock_timeout=1.0) as store:
        await store.create_session("test", session_id=SESSION)
        widen = cramp(path)
        for _ in range(3):
            await append_until_full(store, stored)
            await check(store, stored)
        widen()
        await store.append(SESSION, Draft("user", "room again"))
        stored.append("room again")
        await check(store, stored)
    async with await Store.open(path, clock=SystemClock(), lock_timeout=1.0) as store:
        await check(store, stored)
    print(f"{len(stored)} messages\nok")  # noqa: T201


if __name__ == "__main__":
    CRAMPS = {"limit": cramp_by_limit, "ballast": cramp_by_ballast}
    asyncio.run(main(Path(sys.argv[1]), CRAMPS[sys.argv[2]]))
