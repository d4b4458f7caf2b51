"""A process without write permission for its store. Root is never refused, so it changes to the user nobody first."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from hermes.clock import SystemClock
from hermes.errors import StoreError
from hermes.store.store import Store

NOBODY = 65534


async def make(path: Path) -> None:
    async with await Store.open(path, clock=SystemClock(), lock_timeout=1.0) as store:
        await store.create_session("test")


async def try_to_open(path: Path) -> str:
    try:
        await make(path)
    except StoreError as error:
        return type(error).__name__
    return "opened"


def main(path: Path, case: str) -> None:
    """Print the result of opening the store, and whether the folder is unchanged."""
    if case != "there is no file":
        asyncio.run(make(path))
        path.chmod(0o666 if case == "the folder may not be written" else 0o444)
    path.parent.chmod(0o555)
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    print(asyncio.run(try_to_open(path)))  # noqa: T201
    after = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    print("unchanged" if after == before else "changed")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
