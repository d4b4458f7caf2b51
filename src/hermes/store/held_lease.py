"""A lease held for as long as a piece of work takes: renewed while it lasts, let go at its end, and given back when
whoever asked for it was cancelled meanwhile.

A session's lane is one: whoever holds it may speak in the session, one turn after another, over all processes.
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
"""Called as `step(tx, now)` in a transaction that has checked that we hold the lane."""
log = logging.getLogger("hermes.leases")
WAITING = "Waiting for another turn of this conversation, in another place."
"""Shown to the person whose turn waits for the lane for longer than `LaneTerms.silence`."""
UNSAID = "Stopped while waiting: this was not said, and is no part of the conversation."
"""Shown to the person who stopped a turn while it waited for the lane: their message was not stored."""


class WantedLease(Struct, frozen=True):
    """How to take and release one lease. `name` is what the log calls it; `ttl` is how many seconds it lasts without
    being renewed. `take` and `release` run inside a transaction."""

    name: str
    take: Callable[[Tx], Lease | None]
    release: Callable[[Tx, Lease], None]
    ttl: float


class HeldLease:
    """A lease that is held. `check` inside a transaction proves that it still is."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.is_over = False
        """It was released already, in the transaction of the holder's last write."""

    def check(self, tx: Tx) -> None:
        """Raise StaleError when another process has taken over."""
        leases.check(tx, self.lease)


def wanted_lease(store: Store, about: str, name: str, owner: str, ttl: float) -> WantedLease:
    """How to take the plain lease called `name`; `about` is what the log calls it."""

    def acquire(tx: Tx) -> Lease | None:
        return leases.acquire(tx, name, owner, ttl=ttl, now=store.clock.now())

    return WantedLease(about, acquire, leases.release, ttl)


async def take(store: Store, wanted: WantedLease) -> HeldLease | None:
    """The lease, or None while another holds it. A lease that is granted while we are cancelled is given back."""

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
            await _let_go(store, wanted, HeldLease(lease))
        raise
    store.unreleased.pop(wanted.name, None)
    return None if lease is None else HeldLease(lease)


@asynccontextmanager
async def kept(store: Store, wanted: WantedLease, held: HeldLease) -> AsyncIterator[HeldLease]:
    """Renew the lease while the block runs, then release it: it is free when this ends, also if that is cancelled."""
    renewal = asyncio.create_task(_renew(store, wanted, held))
    try:
        yield held
    finally:
        renewal.cancel()
        if not held.is_over:
            letting_go = asyncio.ensure_future(_let_go(store, wanted, held))
            try:
                await asyncio.shield(letting_go)
            except asyncio.CancelledError:
                await letting_go
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


async def _let_go(store: Store, wanted: WantedLease, held: HeldLease) -> None:
    """Must not raise: the work is already committed, and the lease expires by itself. One that cannot be let go now is
    let go by whoever wants it next in this process."""
    try:
        await store.write(lambda tx: wanted.release(tx, held.lease))
    except StaleError:
        pass  # lost already: there is nothing to let go
    except StoreError as error:
        log.warning("could not release %s, which ends by itself in %g s: %s", wanted.name, wanted.ttl, error.line())
        now = store.clock.now()
        lasting = {name: lease for name, lease in store.unreleased.items() if lease.expires_at > now}
        store.unreleased = {**lasting, wanted.name: held.lease}


class LaneTerms(Struct, frozen=True):
    """Times in seconds. A lane is free again `ttl` after its holder's last sign of life. Whoever waits for it asks
    every `poll`, gives up after `patience`, and tells the person after `silence` that it waits."""

    ttl: float = 30.0
    poll: float = 0.1
    patience: float = 120.0
    silence: float = 3.0


class Lane(Struct, frozen=True):
    """The right to speak in one session, while we hold it."""

    session_id: str
    held: HeldLease

    async def write(self, store: Store, run: Step[T], *, last: bool = False) -> T:
        """Run `run` in a transaction, which lets the lane go if it is `last`. Raises StaleError when it was lost."""

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
    """A lane that was taken, and what the step returned that ran in the transaction that took it."""

    lane: Lane
    begun: T


class LaneDoor(Generic[T]):
    """An `async with` block that waits for a session's lane, and lets it go at the end of the block.

    `begin` runs in the transaction that takes the lane. When it raises, the lane is not taken.
    """

    def __init__(self, store: Store, session_id: str, owner: str, terms: LaneTerms, begin: Step[T]) -> None:
        self._store = store
        self._session_id = session_id
        self._terms = terms
        self._begun: list[T] = []
        """What `begin` returned; empty until the transaction that takes the lane has run."""
        self._wanted = _wanted_lane(store, session_id, owner, terms, lambda tx, now: self._begun.append(begin(tx, now)))
        self._held = AsyncExitStack()
        self.entered: Entered[T] | None = None
        """None before `wait` has ended, and when the person stopped it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def wait(self, stop: asyncio.Event) -> AsyncGenerator[None, None]:
        """Wait until the lane is ours (`entered` is set) or `stop` is set.

        Yields once, after `silence` seconds, so that the caller can tell the person that it waits. Raises
        SessionBusyError when it takes longer than `patience`.
        """
        since, told = self._store.clock.now(), False
        while (held := await take(self._store, self._wanted)) is None:
            if stop.is_set():
                return
            waited = self._store.clock.now() - since
            if waited >= self._terms.patience:
                raise SessionBusyError(f"session {self._session_id} is being talked to by another process")
            if waited >= self._terms.silence and not told:
                told = True
                yield
            await self._store.clock.sleep(self._terms.poll)
        await self._held.enter_async_context(kept(self._store, self._wanted, held))
        self.entered = Entered(Lane(self._session_id, held), self._begun[-1])


def _wanted_lane(store: Store, session_id: str, owner: str, terms: LaneTerms, begin: Step[None]) -> WantedLease:
    def hold(tx: Tx) -> Lease | None:
        now = store.clock.now()
        lease = lanes.hold_lane(tx, SESSIONS, session_id, owner, ttl=terms.ttl, now=now)
        if lease is not None:
            begin(tx, now)
        return lease

    def release(tx: Tx, lease: Lease) -> None:
        lanes.release_lane(tx, SESSIONS, session_id, lease)

    return WantedLease(f"the lane of session {session_id}", hold, release, terms.ttl)
