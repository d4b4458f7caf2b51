"""A lease held for as long as a piece of work takes: renewed while it lasts, let go at its end, and given back when
whoever asked for it was cancelled meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from hermes.db import leases
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import StaleError, StoreError
from hermes.store.store import Store

log = logging.getLogger("hermes.leases")


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
    taking = asyncio.ensure_future(store.write(wanted.take))
    try:
        lease = await asyncio.shield(taking)
    except asyncio.CancelledError:
        if (lease := await taking) is not None:
            await _let_go(store, wanted, HeldLease(lease))
        raise
    return None if lease is None else HeldLease(lease)


@asynccontextmanager
async def kept(store: Store, wanted: WantedLease, held: HeldLease) -> AsyncIterator[HeldLease]:
    """Renew the lease while the block runs, then release it."""
    heart = asyncio.create_task(_beat(store, wanted, held))
    try:
        yield held
    finally:
        heart.cancel()
        if not held.is_over:
            await asyncio.shield(_let_go(store, wanted, held))


async def _beat(store: Store, wanted: WantedLease, held: HeldLease) -> None:
    def renew(tx: Tx) -> Lease:
        return leases.renew(tx, held.lease, ttl=wanted.ttl, now=store.clock.now())

    while True:
        await store.clock.sleep(wanted.ttl / 3)
        try:
            held.lease = await store.write(renew)
        except StaleError:
            return  # the next write under it finds out and is refused
        except StoreError as error:  # the next beat may succeed, and it is ours until someone takes it
            log.warning("could not renew %s: %s", wanted.name, error.line())


async def _let_go(store: Store, wanted: WantedLease, held: HeldLease) -> None:
    """Must not raise: what was done under the lease stands."""
    try:
        await store.write(lambda tx: wanted.release(tx, held.lease))
    except StaleError:
        pass  # lost already: there is nothing to let go
    except StoreError as error:
        log.warning("could not release %s, which ends by itself in %g s: %s", wanted.name, wanted.ttl, error.line())
