"""Work off everybody's turn, while a conversation lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from hermes.agent.stopping import unless_stopped


async def _nothing() -> None:
    pass


class Background:
    """Begins pieces of work. What is not done at the end is stopped there, and what must follow it is done all the
    same."""

    def __init__(self) -> None:
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], then: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Begin `work`; `then` comes after it, also when it was stopped."""
        task = asyncio.create_task(self._run(work, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Stop what runs, and wait until all is at rest."""
        self._ending.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, work: Coroutine[Any, Any, None], then: Callable[[], Awaitable[None]]) -> None:
        try:
            await unless_stopped(work, self._ending)
        finally:
            await then()
