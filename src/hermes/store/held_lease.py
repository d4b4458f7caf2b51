"""Leases held for the length of a task: renewed while it runs, released when it ends, and released as well if the task
is cancelled while it acquires one.

The lane of a session is such a lease: its holder may write in the session. Turns of all processes take it one after
another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Generic, Self, TypeAlias, TypeVar

from msgspec import Struct

from hermes.db import lanes, leases
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import SessionBusyError, StaleError, StoreError
from hermes.store.ids import SESSIONS
from hermes.store.store import Store

T = TypeVar("T")
Step: TypeAlias = Callable[[Tx, float], T]
"""A function called as `step(tx, now)` in a transaction that has checked that we hold the lane."""
log = logging.getLogger("hermes.leases")
WAITING = "Waiting for another turn of this conversation, in another place."
"""Shown to the person whose turn has waited for the lane for longer than `LaneOptions.notice_delay`."""
UNSAID = "Stopped while waiting: your message was not stored and is not part of the conversation."
"""Shown to the person who stopped a turn that still waited for the lane: their message was not stored."""


class WantedLease(Struct, frozen=True):
    """How to take and release one lease. `name` is its name in the log; it expires after `ttl` seconds unless renewed.
    `take` and `release` run inside a transaction."""

    name: str
    take: Callable[[Tx], Lease | None]
    release: Callable[[Tx, Lease], None]
    ttl: float


class HeldLease:
    """A lease that we hold. `check` verifies that inside a transaction."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.is_over = False
        """True if the transaction of the holder's last write released it."""

    def check(self, tx: Tx) -> None:
        """Raise StaleError if another process has taken over."""
        leases.check(tx, self.lease)


def wanted_lease(store: Store, about: str, name: str, owner: str, ttl: float) -> WantedLease:
    """Return how to take the plain lease called `name`; `about` is its name in the log."""

    def acquire(tx: Tx) -> Lease | None:
        return leases.acquire(tx, name, owner, ttl=ttl, now=store.clock.now())

    return WantedLease(about, acquire, leases.release, ttl)


async def take(store: Store, wanted: WantedLease) -> HeldLease | None:
    """Return the lease, or None while another process holds it. If we are cancelled meanwhile, release it again."""

    def acquire(tx: Tx) -> Lease | None:
        if (left := store.unreleased.get(wanted.name)) is not None:
            with suppress(StaleError):  # lost already
                wanted.release(tx, left)
        return wanted.take(tx)

    taking = asyncio.ensure_future(store.write(acquire))
    try:
        lease = await asyncio.shield(taking)
    except asyncio.CancelledError:
        if (lease := await taking) is not None:
            await _release(store, wanted, HeldLease(lease))
        raise
    store.unreleased.pop(wanted.name, None)
    return None if lease is None else HeldLease(lease)


@asynccontextmanager
async def kept(store: Store, wanted: WantedLease, held: HeldLease) -> AsyncIterator[HeldLease]:
    """Renew the lease while the block runs, then release it. It is released when this returns, even if cancelled."""
    renewal = asyncio.create_task(_renew(store, wanted, held))
    try:
        yield held
    finally:
        renewal.cancel()
        if not held.is_over:
            releasing = asyncio.ensure_future(_release(store, wanted, held))
            try:
                await asyncio.shield(releasing)
            except asyncio.CancelledError:
                await releasing
                raise


async def _renew(store: Store, wanted: WantedLease, held: HeldLease) -> None:
    def renew(tx: Tx) -> Lease:
        return leases.renew(tx, held.lease, ttl=wanted.ttl, now=store.clock.now())

    while True:
        await store.clock.sleep(wanted.ttl / 3)
        try:
            held.lease = await store.write(renew)
        except StaleError:
            return  # another process has the lease: the holder's next write raises StaleError too
        except StoreError as error:  # the next try may succeed, and the lease is ours until someone takes it
            log.warning("could not renew %s: %s", wanted.name, error.line())


async def _release(store: Store, wanted: WantedLease, held: HeldLease) -> None:
    """Release the lease. Never raises: the work is committed already, and the lease expires by itself. After a failure,
    the next caller in this process that wants the lease releases it."""
    try:
        await store.write(lambda tx: wanted.release(tx, held.lease))
    except StaleError:
        pass  # lost already
    except StoreError as error:
        log.warning("could not release %s, which ends by itself in %g s: %s", wanted.name, wanted.ttl, error.line())
        now = store.clock.now()
        lasting = {name: lease for name, lease in store.unreleased.items() if lease.expires_at > now}
        store.unreleased = {**lasting, wanted.name: held.lease}


class LaneOptions(Struct, frozen=True):
    """Times in seconds. A lane is free `ttl` after its holder's last renewal. Waiting callers ask every `poll`, give up
    after `timeout`, and notify the person after `notice_delay`."""

    ttl: float = 30.0
    poll: float = 0.1
    timeout: float = 120.0
    notice_delay: float = 3.0


class Lane(Struct, frozen=True):
    """The right to write in one session, while we hold it."""

    session_id: str
    held: HeldLease

    async def write(self, store: Store, run: Step[T], *, last: bool = False) -> T:
        """Run `run` in a transaction, which also releases the lane if it is the `last`. Raises StaleError if the lane
        was lost."""

        def write(tx: Tx) -> T:
            if last:
                lanes.release_lane(tx, SESSIONS, self.session_id, self.held.lease)
            else:
                self.held.check(tx)
            return run(tx, store.clock.now())

        written = await store.write(write)
        self.held.is_over = last
        return written


class Entered(Struct, Generic[T], frozen=True):
    """A lane that was taken, and the return value of the step that ran in the same transaction."""

    lane: Lane
    begun: T


class LaneDoor(Generic[T]):
    """An `async with` block that waits for a session's lane and releases it at the end of the block.

    `begin` runs in the transaction that takes the lane. If it raises, the lane is not taken.
    """

    def __init__(self, store: Store, session_id: str, owner: str, options: LaneOptions, begin: Step[T]) -> None:
        self._store = store
        self._session_id = session_id
        self._options = options
        self._begun: list[T] = []
        """Return value of `begin`; empty until the transaction that takes the lane has run."""
        self._wanted = _wanted_lane(
            store, session_id, owner, options, lambda tx, now: self._begun.append(begin(tx, now))
        )
        self._held = AsyncExitStack()
        self.entered: Entered[T] | None = None
        """Set when `wait` has ended, unless the person stopped it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def wait(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """Wait until we hold the lane (`entered` is set) or `stop` is set.

        Yields once, after `notice_delay` seconds, so that the caller can notify the person. Raises SessionBusyError
        after `timeout` seconds.
        """
        since, notified = self._store.clock.now(), False
        while (held := await take(self._store, self._wanted)) is None:
            if stop.is_set():
                return
            waited = self._store.clock.now() - since
            if waited >= self._options.timeout:
                raise SessionBusyError(f"another process is using session {self._session_id}")
            if waited >= self._options.notice_delay and not notified:
                notified = True
                yield
            await self._store.clock.sleep(self._options.poll)
        await self._held.enter_async_context(kept(self._store, self._wanted, held))
        self.entered = Entered(Lane(self._session_id, held), self._begun[-1])


def _wanted_lane(store: Store, session_id: str, owner: str, options: LaneOptions, begin: Step[None]) -> WantedLease:
    def hold(tx: Tx) -> Lease | None:
        now = store.clock.now()
        lease = lanes.hold_lane(tx, SESSIONS, session_id, owner, ttl=options.ttl, now=now)
        if lease is not None:
            begin(tx, now)
        return lease

    def release(tx: Tx, lease: Lease) -> None:
        lanes.release_lane(tx, SESSIONS, session_id, lease)

    return WantedLease(f"the lane of session {session_id}", hold, release, options.ttl)
