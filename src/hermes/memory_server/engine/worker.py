"""The background worker: starts every job that may run now, then looks for more. Several workers may share a folder.

claim (a transaction) ── prepare (outside, concurrently, with a timeout) ── commit (a transaction: effect and end)

Each kind of job has a number of slots. While all are taken, further jobs of that kind wait; other kinds continue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from hermes.clock import Clock
from hermes.errors import StoreBusyError, StoreError
from hermes.memory_server import times
from hermes.memory_server.db.database import Database, Tx
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine import jobs as queue
from hermes.memory_server.engine.answers import forget_answers
from hermes.memory_server.engine.dreams import find_due_dreams, queue_dreams
from hermes.memory_server.engine.job_handlers import HANDLERS, JobHandler, JobTools
from hermes.memory_server.engine.job_kinds import TRACKED
from hermes.memory_server.engine.jobs import Job
from hermes.memory_server.engine.merging import forget_merges
from hermes.memory_server.engine.webhooks import WebhookDelivery, announce_empty_queue
from hermes.memory_server.model.answer import ModelWaiting
from hermes.memory_server.model.calls import forget_calls
from hermes.memory_server.model.door import ModelDoor

log = logging.getLogger(__name__)
FIRST_IDLE_SECONDS, MAX_IDLE_SECONDS = 0.25, 1.0
"""The first and the longest time between two polls of an empty queue. Jobs that this process queues wake its worker at
once.
"""
STUCK_AFTER_SECONDS = 90.0
"""A worker that has not polled for this long counts as dead. Waiting for a lock takes up to a third of it."""
CLEAN_INTERVAL_SECONDS = 600.0
DREAM_CHECK_SECONDS = 60.0
"""The time between two checks for peers with enough new statements for a dream."""
QUIET_SECONDS = 0.05
MAX_SETTLE_SECONDS = 1.0
"""A job starts once nobody has written for the first, or at the latest after the second, so that clients that write
message after message come first.
"""
MAX_PAUSE_SECONDS = 5.0
"""The longest pause after claiming a job, well below its lease."""
RENEW_INTERVAL_SECONDS = 3.0
"""The time between two renewals of a job's lease, which is three times as long."""


class LeaseLostError(Exception):
    """Another worker took the job over; the changes of this one are rolled back."""


class JobWorker:
    """A worker that runs background jobs of one database until it is stopped."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        embedder: Embedder,
        *,
        delivery: WebhookDelivery | None = None,
        models: ModelDoor | None = None,
        dreams: bool = False,
        kinds: Mapping[str, JobHandler[Any, Any]] = HANDLERS,
    ) -> None:
        self.database = database
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """The number of jobs by kind and outcome: done, lost, waiting or failed."""
        self._clock = clock
        self._tools = JobTools(database, embedder, delivery or WebhookDelivery(), models)
        self._kinds = kinds
        self._dreams = dreams
        self._looked = float("-inf")
        self._looked_at = 0
        self._news = asyncio.Event()
        self._written = float("-inf")
        self._stopped = False
        self._ended = asyncio.Event()
        self._cleaned = 0.0
        self._turned = time.monotonic()
        self._idle = FIRST_IDLE_SECONDS
        self._taken: dict[asyncio.Task[None], str] = {}
        self._preparing: set[asyncio.Task[Any]] = set()
        self.owner = f"{os.getpid()}-{secrets.token_hex(4)}"

    def wake(self) -> None:
        """Look for jobs, because something was written."""
        self._written = time.monotonic()
        self._news.set()

    def stop(self) -> None:
        """Start no more jobs. Jobs being prepared are given back, jobs being committed are finished."""
        self._stopped = True
        self._ended.set()
        self._news.set()
        for preparing in self._preparing:
            preparing.cancel()

    def is_alive(self) -> bool:
        """Return True if the worker has looked for jobs lately."""
        return not self._stopped and time.monotonic() - self._turned < STUCK_AFTER_SECONDS

    async def run(self) -> None:
        """Run jobs until stopped. A failed job is retried later, and at once after a start; it delays no other unit."""
        loop = asyncio.get_running_loop()
        self.database.watch_jobs(lambda: loop.call_soon_threadsafe(self.wake))
        began = resumed = False
        logged = ""
        while not self._stopped:
            self._turned = time.monotonic()
            self._news.clear()
            if not began:
                await self._settle()
            try:
                if not resumed:
                    await self.database.write(queue.retry_failed)
                    resumed = True
                began = await self._begin()
                await self._clean()
                await self.queue_dreams()
                logged = ""
            except StoreError as error:
                began = False
                if (line := error.line()) != logged:
                    log.warning("memory worker: %s", line)
                logged = line
            await self._rest()
        await asyncio.gather(*self._taken)

    async def work_once(self) -> bool:
        """Run every job that may run now, and the jobs that follow from them. Return False if no job ran."""
        began = await self._begin()
        await asyncio.gather(*self._taken)
        return began

    async def _settle(self) -> None:
        """Wait until nobody has written for a moment, but not for long."""
        end = time.monotonic() + MAX_SETTLE_SECONDS
        while not self._stopped:
            left = min(self._written + QUIET_SECONDS, end) - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, MAX_PAUSE_SECONDS)):
                await self._ended.wait()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._idle):
                await self._news.wait()
            self._idle = FIRST_IDLE_SECONDS
        except TimeoutError:
            self._idle = min(2 * self._idle, MAX_IDLE_SECONDS)

    async def _begin(self) -> bool:
        """Start as many jobs as there are free slots. Return True if there were any."""
        taken = Counter(self._taken.values())
        places = {name: kind.places - taken[name] for name, kind in self._kinds.items() if kind.places > taken[name]}
        at = self._now()
        waiting = await self.database.read(lambda tx: [name for name in places if queue.has_work(tx, name, at)])
        if not waiting or self._stopped:
            return False
        claimed = await self.database.write(lambda tx: self._claim(tx, {name: places[name] for name in waiting}))
        for job in claimed:
            doing = asyncio.create_task(self._do_in_turn(job))
            self._taken[doing] = job.kind
            doing.add_done_callback(self._leave)
        return bool(claimed)

    def _claim(self, tx: Tx, places: Mapping[str, int]) -> list[Job[Any]]:
        at = self._now()
        return [job for name, room in places.items() for job in queue.claim_jobs(tx, self.owner, name, at, room)]

    def _leave(self, doing: asyncio.Task[None]) -> None:
        del self._taken[doing]
        self._news.set()

    async def _do_in_turn(self, job: Job[Any]) -> None:
        """Run a job, and then the jobs of its kind that follow it."""
        following: Job[Any] | None = job
        rest_share = self._kinds[job.kind].rest_share
        while following is not None and not self._stopped:
            began = time.monotonic()
            following = await self._do(following)
            if following is not None:
                spent = time.monotonic() - began
                await (self._settle() if rest_share is None else self._pause(rest_share * spent))
        if following is not None:
            await self._give_back(following)

    async def _do(self, job: Job[Any]) -> Job[Any] | None:
        """Run both halves of a job under its lease. Return the next job of its kind, claimed in the same commit."""
        kind = self._kinds[job.kind]
        preparing: asyncio.Task[Any] = asyncio.create_task(kind.prepare(self._tools, job))
        self._preparing.add(preparing)
        keeping = asyncio.create_task(self._keep(job, preparing))
        try:
            async with asyncio.timeout(kind.seconds):
                prepared = await preparing
            self._preparing.discard(preparing)
            following = await self.database.write(lambda tx: self._commit(tx, job, prepared))
            self.outcomes[job.kind, "done"] += 1
            return following
        except LeaseLostError:
            self.outcomes[job.kind, "lost"] += 1
            log.info("memory worker: job %s was taken over by another worker, or its subject was deleted", job.id)
        except asyncio.CancelledError:
            await self._give_back(job)
        except ModelWaiting as waiting:
            await self._wait(job, waiting)
        except TimeoutError:
            await self._fail(job, TimeoutError(f"not done within {kind.seconds:g} seconds"))
        except Exception as error:  # noqa: BLE001 - the boundary of a job: recorded with it, and retried
            await self._fail(job, error)
        finally:
            self._preparing.discard(preparing)
            keeping.cancel()
        return None

    async def _keep(self, job: Job[Any], preparing: asyncio.Task[Any]) -> None:
        """Renew the lease while the job runs, and cancel preparing if the lease is lost."""
        while True:
            await self._clock.sleep(RENEW_INTERVAL_SECONDS)
            try:
                kept = await self.database.write(lambda tx: queue.renew_job(tx, job, self._now()))
            except StoreError as error:
                log.warning("memory worker: the lease of job %s was not renewed: %s", job.id, error.line())
                continue
            if not kept:
                preparing.cancel()
                return

    def _commit(self, tx: Tx, job: Job[Any], prepared: Any) -> Job[Any] | None:
        """Apply the job's effect and finish it in one transaction, which also claims the next job of its kind."""
        at = self._now()
        if not queue.finish_job(tx, job, at):
            raise LeaseLostError
        if self._kinds[job.kind].commit(tx, job, prepared, at):
            queue.keep_place(tx, job)
        if job.kind in TRACKED:
            announce_empty_queue(tx, job.workspace_id, job.kind, at)
        return queue.claim_job(tx, self.owner, job.kind, at)

    async def _fail(self, job: Job[Any], error: Exception) -> None:
        # The error may quote messages: keep one line, cut short.
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[: queue.MAX_REASON_CHARS]
        is_soon_over = (
            isinstance(error, StoreBusyError) and job.attempts < queue.MAX_ATTEMPTS
        )  # a long read holds the lock
        level = logging.INFO if is_soon_over else logging.WARNING
        self.outcomes[job.kind, "failed"] += 1
        log.log(level, "memory worker: job %s (%s) failed: %s", job.id, job.kind, reason)
        await self._record(job, lambda tx: queue.fail_job(tx, job, reason, self._now()))

    async def _wait(self, job: Job[Any], waiting: ModelWaiting) -> None:
        """Let a job wait for a model; the model's own log gives the reason, once."""
        self.outcomes[job.kind, "waiting"] += 1
        await self._record(job, lambda tx: queue.defer_job(tx, job, str(waiting), waiting.retry_seconds, self._now()))

    async def _give_back(self, job: Job[Any]) -> None:
        await self._record(job, lambda tx: queue.release_job(tx, job))

    async def _record(self, job: Job[Any], run: Callable[[Tx], None]) -> None:
        """Store the outcome of a job. If that fails, the lease expires and the job is claimed again."""
        try:
            await self.database.write(run)
        except StoreError as error:
            log.warning("memory worker: job %s: %s", job.id, error.line())

    async def _clean(self) -> None:
        if self._clock.now() - self._cleaned >= CLEAN_INTERVAL_SECONDS:
            more = await self.database.write(self._forget)
            if not more:
                self._cleaned = self._clock.now()

    async def queue_dreams(self) -> None:
        """Queue due dreams, if automatic dreams are on; a part of all collections at a time."""
        now = self._clock.now()
        if self._dreams and not self._looked <= now < self._looked + DREAM_CHECK_SECONDS:
            after, at = self._looked_at, self._now()
            due, self._looked_at = await self.database.read(lambda tx: find_due_dreams(tx, at, after))
            if due:
                await self.database.write(lambda tx: queue_dreams(tx, due, at))
            self._looked = float("-inf") if self._looked_at else now

    def _forget(self, tx: Tx) -> bool:
        """Delete some of the expired rows. Return True if more are left."""
        jobs_left = queue.forget_finished(tx, self._now())
        answers_left = forget_answers(tx, self._now())
        calls_left = forget_calls(tx, self._now())
        return forget_merges(tx, self._now()) or answers_left or jobs_left or calls_left

    def _now(self) -> int:
        return times.now(self._clock)


@asynccontextmanager
async def working(
    database: Database,
    clock: Clock,
    embedder: Embedder,
    delivery: WebhookDelivery,
    models: ModelDoor | None = None,
    *,
    dreams: bool = False,
) -> AsyncIterator[JobWorker]:
    """Run a worker while the block runs, with a separate database, which is closed afterwards."""
    worker = JobWorker(database, clock, embedder, delivery=delivery, models=models, dreams=dreams)
    running = asyncio.create_task(worker.run())
    running.add_done_callback(lambda task: _report_defect(worker, task))
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait([running])
        await database.close()


def _report_defect(worker: JobWorker, task: asyncio.Task[None]) -> None:
    """Log a worker that ended because of a defect, and stop it, so that `/health` reports it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("memory worker: the worker ended because of an unexpected error", exc_info=error)
        worker.stop()
