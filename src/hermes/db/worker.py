"""The queue worker: claims lanes that are due, keeps them while they are handled, and records the outcomes.

    claim ──> heartbeat while ──> work.handle ──> settle: done, dead, or once more after a back-off ──> the next claim

Lanes are handled side by side, up to `at_once`. All failures are dealt with here: a lost lane is left to its new
owner, store errors are retried without a limit, exceptions of a handler a few times. All times come from the clock, so
that tests can move it by hand.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from hermes.clock import Clock
from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.lanes import free_lanes, head_time, heed_clock
from hermes.db.queue import (
    GIVEN_UP,
    MAX_CRASHES,
    MIN_SUSPECT_CRASHES,
    Claim,
    Dead,
    Defect,
    ItemOutcome,
    Postponed,
    Retry,
    backoff,
)
from hermes.db.queue_items import Isolation, Taken
from hermes.errors import StaleError, StoreError

T = TypeVar("T")
log = logging.getLogger("hermes.queue")

LANE_POLL_SECONDS = 0.2
"""Time between two checks of a lane that another process holds, while a caller waits for it."""
MAX_SUSPECTS_PER_CLAIM = 8
MIN_SET_BACK_SECONDS = 1.0
"""Minimum backward jump of the clock that counts as set back."""


class QueueStore(Protocol):
    """The database of the queue."""

    async def write(self, run: Callable[[Tx], T], /) -> T:
        """Return the result of `run` once it is committed."""


class Work(ABC):
    """The handler of a queue's items."""

    @abstractmethod
    async def handle(self, claimed: Claim) -> Sequence[ItemOutcome] | None:
        """Handle items of one lane, in order. Return the outcomes of the first ones; None if the claim is settled
        already. An exception counts as a Defect of all of them, except StaleError (the lane was lost) and StoreError
        (retried without a limit). Cancelled at the end of `drain`, which returns all items to the queue."""

    async def gather(self) -> None:  # noqa: B027 - may wait for nothing
        """Wait for more items before the next claim, so that they are handled together. Called unless more was due than
        fit. Callers of `run_lane` do not wait for it."""

    def settling(self, tx: Tx, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:  # noqa: B027 - may add nothing
        """Called in the transaction that records outcomes, to write their consequences with them."""

    def settled(self, claimed: Claim, recorded: Sequence[ItemOutcome]) -> None:  # noqa: B027 - may add nothing
        """Called on the worker's event loop after that transaction."""


class WorkerOptions(Struct, frozen=True):
    """Parameters of a worker. Times are in seconds."""

    ttl: float = 30.0
    """Lifetime of a lane's lease without a heartbeat, which is sent every third of it."""
    batch: int = 1
    """Maximum number of items of a lane that are handled together."""
    at_once: int = 8
    """Maximum number of lanes that are handled side by side."""
    poll: float = 1.0
    """Time between two claims unless the worker is woken."""
    longest_wait: float = 60.0
    """Maximum back-off, which begins with one second."""
    keeps_lost: bool = False
    """True to retry an item whose owners vanish again and again without a limit. Otherwise it is handled alone (see
    `isolation.py`), and is dead once that has ended the process MAX_CRASHES times."""


def log_trouble(error: StoreError) -> None:
    log.error("the queue cannot be read: %s", error.line())


class QueueWorker:
    """Handles one queue for one process. Set `wake` after adding an item."""

    def __init__(
        self,
        db: QueueStore,
        clock: Clock,
        name: str,
        work: Work,
        *,
        owner: str,
        options: WorkerOptions,
        chance: Callable[[], float],
        wake: asyncio.Event,
        on_trouble: Callable[[StoreError], None] = log_trouble,
        isolation: Isolation | None = None,
    ) -> None:
        """`on_trouble` is called with every store error; workers of one process share `isolation`."""
        self.wake = wake
        self._on_trouble = on_trouble
        self._db = db
        self._clock = clock
        self._name = name
        self._work = work
        self._owner = owner
        self._options = options
        self._chance = chance
        self._running: dict[asyncio.Task[None], str] = {}
        """Running tasks, with their lanes."""
        self._held: dict[str, Claim] = {}
        """The claims that we hold, with their current leases."""
        self._unrecorded: list[tuple[Claim, Sequence[ItemOutcome]]] = []
        """Outcomes that could not be stored yet."""
        self._isolation = isolation or Isolation()
        self._isolation.wakes.append(wake)
        self._paused_until = 0.0
        self._latest = 0.0
        """Time of the last clock check."""
        self._is_set_back = True
        """True if the clock may have been set back since item times were last corrected."""
        self._context = contextvars.copy_context()  # lanes run outside any turn, even if a turn requests them

    async def run(self) -> None:
        """Handle due items until cancelled; running handlers then continue until `drain`."""
        try:
            await self._db.write(lambda tx: free_lanes(tx, self._name, now=self._clock.now()))
        except StoreError as error:  # they are free when their leases have run out
            log.error("%s: lanes of processes that ended could not be freed: %s", self._name, error.line())
        while True:
            self.wake.clear()
            room = self._options.at_once - len(self._running)
            has_room = await self._begin_due() < room
            waking = asyncio.create_task(self.wake.wait())
            try:
                await self._wait(self._clock.now() + self._options.poll, waking)
            finally:
                waking.cancel()
            if has_room:
                await self._work.gather()

    async def run_lane(self, lane: str, until: float) -> bool:
        """Handle one lane now, before all others. Return True as soon as no item waits in it.

        Returns False when `until` has passed, or if the next item is due later. Only the waiting ends then, not the
        handling. Raises StoreError if the queue cannot be read.
        """
        while (now := self._clock.now()) < until:
            ours = [task for task, name in self._running.items() if name == lane]
            if ours or len(self._running) >= self._options.at_once:
                await self._wait(until, *(ours or self._running))
            elif self._paused_until > now:
                await self._wait(min(until, self._paused_until))
            elif not await self._begin(lane) and lane not in self._running.values():  # else it was begun meanwhile
                head = await self._db.write(lambda tx: head_time(tx, self._name, lane))
                if head is None or head >= until:
                    return head is None
                await self._wait(min(until, max(head, now + LANE_POLL_SECONDS)))
        return False

    async def finish(self, seconds: float) -> None:
        """Handle due items until none is left or the time is over; running handlers are left to `drain`."""
        until = self._clock.now() + seconds
        while True:
            under_way = [*self._running]  # a lane that ends while we look may have more, which the look has not found
            if not (await self._begin_due() or under_way) or self._clock.now() >= until:
                return
            await self._wait(until, *under_way, *self._running)

    async def drain(self, seconds: float) -> None:
        """Let running handlers finish, then cancel the rest and return their items. `run` must have ended."""
        until = self._clock.now() + seconds
        while self._running and self._clock.now() < until:
            await self._wait(until, *self._running)
        if late := set(self._running):
            await asyncio.sleep(0)  # one that has not begun could not give anything back
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    def pause(self, until: float) -> None:
        """Claim no lane until then, because the destination of all items is down. Running handlers continue."""
        self._paused_until = max(self._paused_until, until)

    async def _begin_due(self) -> int:
        """Begin every due lane that fits, and return how many."""
        unrecorded, self._unrecorded = self._unrecorded, []
        for claimed, outcomes in unrecorded:
            await self._record(claimed, outcomes)
        try:
            return await self._begin(None)
        except StoreError as error:
            self._on_trouble(error)
            return 0

    async def _begin(self, lane: str | None) -> int:
        """Claim all due lanes, or only `lane`, in one transaction. If we are cancelled meanwhile, return the claims,
        which nobody would handle."""
        isolation = self._isolation
        async with isolation.taking:
            self._look_at_clock()
            room, now = self._options.at_once - len(self._running), self._clock.now()
            if (room <= 0 and isolation.alone is None) or self._paused_until > now:
                return 0
            if lane is None and not isolation.admits(self._name, now):  # a named lane belongs to a turn that runs
                return 0
            taking = asyncio.ensure_future(self._db.write(lambda tx: self._take(tx, lane, room)))
            try:
                taken = await asyncio.shield(taking)
            except asyncio.CancelledError:
                with suppress(StoreError):  # then nothing was taken
                    for claimed in (await taking).claims:
                        await self._settle(claimed, [Postponed(claimed.items[0].not_before)])
                raise
            self._is_set_back = False
            if lane is None:
                isolation.begin(self._name, taken, now)
            for claimed in taken.claims:
                task = asyncio.create_task(self._handle(claimed), context=self._context.copy())
                self._running[task] = claimed.lane
                isolation.running += 1
                task.add_done_callback(partial(self._ended, claimed))
            return len(taken.claims)

    def _look_at_clock(self) -> None:
        """End a pause if the clock was set back, since it might last as long as the clock was ahead."""
        now = self._clock.now()
        if now < self._latest - MIN_SET_BACK_SECONDS:
            log.warning("%s: the clock was set back by %.0f seconds", self._name, self._latest - now)
            self._is_set_back, self._paused_until = True, 0.0
        self._latest = now

    def _take(self, tx: Tx, lane: str | None, room: int) -> Taken:
        now, isolation = self._clock.now(), self._isolation
        if self._is_set_back:
            heed_clock(tx, self._name, now=now)
        queue.renew_expired(tx, self._held, ttl=self._options.ttl, now=now)
        if lane is None and isolation.alone is not None:  # it is ours, and others have waited long enough
            queue.count_alone(tx, isolation.alone, alone=False)
        taken: list[Claim] = []
        suspects: list[Claim] = []
        overdue = isolation.overdue_lane(self._name, now) if lane is None else None
        if overdue is not None and (claimed := self._claim(tx, overdue, now)) is not None:
            if self._is_suspect(claimed) and not isolation.running:
                queue.count_alone(tx, claimed, alone=True)
                return Taken([claimed], is_alone=True)
            taken.append(claimed)
        while len(taken) < room and len(suspects) < MAX_SUSPECTS_PER_CLAIM and (claimed := self._claim(tx, lane, now)):
            (suspects if self._is_suspect(claimed) else taken).append(claimed)
        is_alone = bool(suspects) and not (taken or isolation.running)
        if is_alone:
            taken.append(suspects.pop(0))
            queue.count_alone(tx, taken[0], alone=True)
        for claimed in suspects:
            queue.settle(tx, claimed, [Postponed(claimed.items[0].not_before)], now=now)
        return Taken(taken, is_alone, suspects[0].lane if suspects else None)

    def _claim(self, tx: Tx, lane: str | None, now: float) -> Claim | None:
        ttl, limit, pause = self._options.ttl, self._options.batch, self._pause_after
        return queue.claim(tx, self._name, self._owner, ttl=ttl, now=now, limit=limit, lane=lane, lost_pause=pause)

    def _is_suspect(self, claimed: Claim) -> bool:
        head = claimed.items[0]
        return not self._options.keeps_lost and head.lost >= MIN_SUSPECT_CRASHES and head.crashes < MAX_CRASHES

    def _ended(self, claimed: Claim, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._isolation.end(claimed)
        self.wake.set()  # its lane may have more, and there is room

    async def _handle(self, claimed: Claim) -> None:
        """Handle one claim. In any case it is settled in the end, or its lease expires."""
        heart = asyncio.create_task(self._keep(claimed))
        self._held[claimed.lane] = claimed
        try:
            outcomes = self._give_up(claimed) or await self._work.handle(claimed)
            if outcomes is not None:
                await self._settle(claimed, outcomes)
        except asyncio.CancelledError:
            await self._settle(claimed, [])
            raise
        except StaleError:
            log.warning("%s: lane %s was taken over by another process", self._name, claimed.lane)
        except StoreError as error:
            self._on_trouble(error)
            await self._settle(claimed, [Retry(self._later(claimed), error.line())])
        except Exception as error:  # whatever it was, it must not end the worker nor the lane
            log.exception("%s: lane %s failed", self._name, claimed.lane)
            defect = Defect(self._later(claimed), f"{type(error).__name__}: {error}")
            await self._settle(claimed, [defect] * len(claimed.items))
        finally:
            heart.cancel()
            if not any(one is claimed for one, _ in self._unrecorded):
                self._held.pop(claimed.lane, None)

    def _give_up(self, claimed: Claim) -> list[ItemOutcome] | None:
        if claimed.items[0].crashes < MAX_CRASHES:
            return None
        log.error("%s: an item of lane %s is given up: handling it ends the process", self._name, claimed.lane)
        return [Dead(GIVEN_UP)]

    async def _settle(self, claimed: Claim, outcomes: Sequence[ItemOutcome]) -> None:
        """Settle a claim, even while we are being cancelled, so that finished work is not repeated."""
        settling = asyncio.ensure_future(self._record(claimed, outcomes))
        try:
            await asyncio.shield(settling)
        except asyncio.CancelledError:
            await settling
            raise

    async def _record(self, claimed: Claim, outcomes: Sequence[ItemOutcome]) -> None:
        """Record outcomes. Never raises: on failure they are kept and recorded as soon as possible."""

        def settle(tx: Tx) -> list[ItemOutcome]:
            recorded = queue.settle(tx, claimed, outcomes, now=self._clock.now())
            self._work.settling(tx, claimed, recorded)
            return recorded

        self._held.setdefault(claimed.lane, claimed)
        try:
            recorded = await self._db.write(settle)
            self._held.pop(claimed.lane, None)
            self._work.settled(claimed, recorded)
        except StaleError:
            level = logging.WARNING if outcomes else logging.INFO
            log.log(level, "%s: lane %s was settled or taken over before", self._name, claimed.lane)
            self._held.pop(claimed.lane, None)
        except StoreError as error:
            self._unrecorded.append((claimed, outcomes))
            self._on_trouble(error)
        except Exception:  # what the work adds must not end the worker
            log.exception("%s: lane %s could not be settled", self._name, claimed.lane)

    async def _keep(self, claimed: Claim) -> None:
        """Renew a lane while it is handled, so that a slow handler does not lose it and its items run twice."""
        ttl = self._options.ttl
        while True:
            await self._clock.sleep(ttl / 3)
            try:
                kept = await self._db.write(lambda tx: queue.heartbeat(tx, claimed, ttl=ttl, now=self._clock.now()))
                self._held[claimed.lane] = kept
            except StaleError:  # found out when it is settled
                return
            except StoreError as error:  # the next beat may succeed
                self._on_trouble(error)

    def _later(self, claimed: Claim) -> float:
        return self._clock.now() + self._pause_after(claimed.items[0].attempts)

    def _pause_after(self, attempts: int) -> float:
        return backoff(attempts, self._chance, base=1.0, cap=self._options.longest_wait)

    async def _wait(self, until: float, *others: asyncio.Future[Any]) -> None:
        """Wait until then, or until one of the futures is done."""
        sleeping = asyncio.ensure_future(self._clock.sleep(max(0.0, until - self._clock.now())))
        try:
            await asyncio.wait({sleeping, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
