"""A thread for what takes long to compute. Not one of the loop's own: those may all be waiting for somebody's disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hermes.memory_server.db.patience import Threads, asker

P = ParamSpec("P")
T = TypeVar("T")
_threads = Threads(1, "memory-compute")
"""One: what is computed in Python takes turns anyway, and two would take two turns from everybody else."""


async def compute(run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `run` returns, computed in a thread so that nobody else waits for it. Who asks for little goes first."""
    who = asker.get()

    def timed() -> T:
        begun = time.thread_time()
        try:
            return run(*args, **kwargs)
        finally:
            if who is not None:
                who.took(time.thread_time() - begun)

    return await _threads.run(timed, 0 if who is None else who.rank)
