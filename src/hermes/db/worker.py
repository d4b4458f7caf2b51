"""Temporary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hermes.db import queue
from hermes.db.outcomes import Outcome
from hermes.db.queue import Claim


@dataclass(frozen=True)
class WorkerTerms:
    at_once: int
    ttl: float
    limit: int
    poll: float = 1.0


class QueueWorker:
    def __init__(
        self,
        store,
        name: str,
        owner: str,
        handle: Callable[[Claim], Awaitable[Sequence[Outcome]]],
        wake: asyncio.Event,
        terms: WorkerTerms,
    ) -> None:
        self.store = store
        self.name = name
        self.owner = owner
        self.handle = handle
        self.wake = wake
        self.terms = terms
        self.tasks = set()
        self.paused_until = 0.0

    def pause(self, seconds):
        self.paused_until = self.store.clock.now() + seconds

    async def run(self):
        while True:
            self.wake.clear()
            while len(self.tasks) < self.terms.at_once and self.store.clock.now() >= self.paused_until:
                c = await self.store.write(
                    lambda tx: queue.claim(
                        tx,
                        self.name,
                        self.owner,
                        ttl=self.terms.ttl,
                        now=self.store.clock.now(),
                        limit=self.terms.limit,
                    )
                )
                if c is None:
                    break
                t = asyncio.create_task(self._one(c))
                self.tasks.add(t)
                t.add_done_callback(self._end)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.terms.poll):
                    await self.wake.wait()

    def _end(self, t):
        self.tasks.discard(t)
        self.wake.set()

    async def _one(self, c):
        outs = []
        try:
            outs = await self.handle(c)
        finally:
            await self.store.write(lambda tx: queue.settle(tx, c, outs, now=self.store.clock.now()))

    async def drain(self, seconds):
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=seconds)
            for t in late:
                t.cancel()
            if late:
                await asyncio.wait(late)
