"""A process that repairs a store twice, as `hermes doctor --repair --yes` does, and reports when it begins."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hermes.audit.repair import repair
from hermes.clock import SystemClock
from hermes.home import Home


def main(home: Path) -> None:
    print("ready", flush=True)  # noqa: T201 - what the parent waits for
    sys.stdin.readline()
    for _ in range(2):
        done = asyncio.run(repair(Home(home), clock=SystemClock(), lock_timeout=30.0))
        print(f"{len(done.mended)} mended, {len(done.left)} left", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
