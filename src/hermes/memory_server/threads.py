"""A thread for long computations. The event loop's default threads may all be waiting for a disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hermes.memory_server.db.scheduling import Threads, scheduled_client

P = ParamSpec("P")
T = TypeVar("T")
_threads = Threads(1, "memory-compute")
"""A single thread: because of the global interpreter lock, a second one would only slow down everybody else."""


async def compute(run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the function in a thread, so that the event loop stays free. Clients that used little time go first."""
    who = scheduled_client.get()

    def timed() -> T:
        begun = time.thread_time()
        try:
            return run(*args, **kwargs)
        finally:
            if who is not None:
                who.took(time.thread_time() - begun)

    return await _threads.run(timed, 0 if who is None else who.rank)
