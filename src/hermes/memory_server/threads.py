"""A thread for what takes long to compute. Not one of the loop's own: those may all be waiting for somebody's disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_threads = ThreadPoolExecutor(1, thread_name_prefix="memory-compute")
"""One: what is computed in Python takes turns anyway, and two would take two turns from everybody else."""


async def compute(run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `run` returns, computed in a thread so that nobody else waits for it."""
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: run(*args, **kwargs))
