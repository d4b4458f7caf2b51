"""The background worker: takes jobs as long as there are any, then looks again. Several may run on one folder."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable

from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.memory_server import times
from hermes.memory_server.db.engine import Database, Tx
from hermes.memory_server.engine import jobs as queue
from hermes.memory_server.engine.deletion import purge_session, purge_workspace, tidy_index
from hermes.memory_server.engine.derive import derive
from hermes.memory_server.engine.dreams import dream
from hermes.memory_server.engine.jobs import Job
from hermes.memory_server.engine.scopes import copy_conclusions
from hermes.memory_server.engine.summaries import make_summary
from hermes.memory_server.engine.webhooks import announce_empty_queue, encode_event

log = logging.getLogger(__name__)
IDLE = 0.25
"""Seconds between two looks at an empty queue; a process that queues work itself wakes its worker at once."""
CLEAN_EVERY = 600.0
SETTLE = 0.05
PATIENCE = 1.0
"""Work begins when nobody wrote for SETTLE seconds, or after PATIENCE: who writes message after message goes first."""
SLICE = 0.004
"""Seconds that work may hold the write lock, beside the last job's own time."""
SLOW = ("webhook",)
"""Kinds that talk to the outside: never inside a transaction."""
RENEW_EVERY = 3.0
WEBHOOK_TIMEOUT = 10.0


class LeaseLostError(Exception):
    """Another worker took the job over; what this one did is rolled back."""


class Worker:
    """Does background work on one database until it is stopped."""

    def __init__(self, database: Database, clock: Clock, *, webhook_secret: str = "") -> None:
        self._database = database
        self._clock = clock
        self._secret = webhook_secret
        self._wake = asyncio.Event()
        self._stopped = False
        self._cleaned = 0.0
        self.owner = f"{os.getpid()}-{secrets.token_hex(4)}"

    def wake(self) -> None:
        """There is work: look now."""
        self._wake.set()

    def stop(self) -> None:
        """End after the job that is under way."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Work until stopped. A job that fails is tried again later and delays no other unit."""
        while not self._stopped:
            self._wake.clear()
            try:
                await self._work_off()
                await self._clean()
            except StoreError as error:
                log.warning("memory worker: %s", error.line())
            await self._rest()

    async def _work_off(self) -> None:
        await self._settle()
        while not self._stopped:
            if not await self.work_once():
                return

    async def _settle(self) -> None:
        """Wait until nobody wrote for a moment, but not for long."""
        end = time.monotonic() + PATIENCE
        while not self._stopped and time.monotonic() < end:
            self._wake.clear()
            try:
                async with asyncio.timeout(SETTLE):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def work_once(self) -> bool:
        """Do some jobs. False when there is none to do now."""
        if not await self._database.read(lambda tx: queue.has_work(tx, self._now())):
            return False
        slow = await self._database.write(self._work_quickly)
        if slow is not None:
            await self._work_slowly(slow)
        return True

    def _work_quickly(self, tx: Tx) -> Job | None:
        """Do jobs inside this transaction, until the time for it is over or one comes that must not be in it."""
        end = time.monotonic() + SLICE
        while time.monotonic() < end:
            job = queue.claim_job(tx, self.owner, self._now())
            if job is None or job.kind in SLOW:
                return job
            tx.exec_driver_sql("SAVEPOINT job")
            try:
                self._doing(job)(tx)
            except Exception as error:  # noqa: BLE001 - the boundary of a job: recorded with it and tried again
                tx.exec_driver_sql("ROLLBACK TO job")
                self._fail(tx, job, error)
            tx.exec_driver_sql("RELEASE job")
        return None

    async def _work_slowly(self, job: Job) -> None:
        """Do a job that talks to the outside, under its lease."""
        keeping = asyncio.create_task(self._keep(job))
        try:
            await self._post(job)
            await self._database.write(self._doing(job))
        except LeaseLostError:
            log.warning("memory worker: job %s was taken over", job.id)
        except Exception as error:  # noqa: BLE001 - the boundary of a job: recorded with it and tried again
            failure = error
            await self._database.write(lambda tx: self._fail(tx, job, failure))
        finally:
            keeping.cancel()

    def _fail(self, tx: Tx, job: Job, error: Exception) -> None:
        log.warning("memory worker: job %s (%s) failed: %s", job.id, job.kind, error)
        queue.fail_job(tx, job, f"{type(error).__name__}: {error}", self._now())

    async def _keep(self, job: Job) -> None:
        """Renew the lease for as long as the job runs."""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            await self._database.write(lambda tx: queue.renew_job(tx, job, self._now()))

    def _doing(self, job: Job) -> Callable[[Tx], None]:
        """The job's effect and its end, in one transaction: both or neither."""

        def run(tx: Tx) -> None:
            at = self._now()
            if not queue.finish_job(tx, job, at):
                raise LeaseLostError
            perform(tx, job, at)
            if job.kind in queue.TRACKED:
                announce_empty_queue(tx, job.workspace_id, job.kind, at)

        return run

    async def _post(self, job: Job) -> None:
        import httpx

        content, headers = encode_event(job.payload["body"], self._secret)
        async with httpx.AsyncClient(timeout=WEBHOOK_TIMEOUT, follow_redirects=False) as client:
            answer = await client.post(job.payload["url"], content=content, headers=headers)
            answer.raise_for_status()

    async def _clean(self) -> None:
        if self._clock.now() - self._cleaned >= CLEAN_EVERY:
            self._cleaned = self._clock.now()
            await self._database.write(lambda tx: queue.forget_finished(tx, self._now()))

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(IDLE):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _now(self) -> int:
        return times.now(self._clock)


def perform(tx: Tx, job: Job, at: int) -> None:
    """What each kind of job does to the tables."""
    if job.kind == "representation":
        derive(tx, job.workspace_id, job.payload)
    elif job.kind == "summary" and job.session_id is not None:
        make_summary(tx, job.session_id, job.payload["kind"], job.payload["seq"], job.payload["every"], at)
    elif job.kind == "dream":
        dream(tx, job.workspace_id, job.payload, at)
    elif job.kind == "scope":
        copy_conclusions(tx, job.workspace_id, job.payload, at)
    elif job.kind == "delete_session":
        purge_session(tx, job.payload["session"], at)
    elif job.kind == "delete_workspace":
        purge_workspace(tx, job.workspace_id, at)
    elif job.kind == "tidy":
        tidy_index(tx, job.payload, at)
    elif job.kind != "webhook":
        raise ValueError(f"nobody knows how to do a job of kind {job.kind}")
