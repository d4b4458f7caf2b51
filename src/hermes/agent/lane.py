"""A session's lane: whoever holds it may speak in the session, one turn after another, over all processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from hermes.db import leases, queue
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import SessionBusyError, StaleError, StoreError
from hermes.store.store import Store

log = logging.getLogger("hermes.lane")

INBOX = "inbox"
"""The queue whose lanes are sessions."""


@dataclass(frozen=True, slots=True)
class LaneTerms:
    """Seconds: `ttl` without a sign of life frees a lane; who wants one asks every `poll`, for `patience` at most."""

    ttl: float = 30.0
    poll: float = 0.1
    patience: float = 120.0


class Lane:
    """A lane that is held. `check` inside a transaction proves that it still is."""

    def __init__(self, session_id: str, lease: Lease) -> None:
        self.session_id = session_id
        self.lease = lease

    def check(self, tx: Tx) -> None:
        """Raise StaleError when another process has taken over."""
        leases.check(tx, self.lease)


@asynccontextmanager
async def hold_lane(store: Store, session_id: str, owner: str, terms: LaneTerms) -> AsyncIterator[Lane]:
    """Hold the lane of a session; wait for whoever has it, and raise SessionBusyError when that takes too long."""
    lane = Lane(session_id, await _wait_for_lane(store, session_id, owner, terms))
    heart = asyncio.create_task(_keep(store, lane, terms.ttl))
    try:
        yield lane
    finally:
        heart.cancel()
        await asyncio.shield(_release(store, session_id, lane.lease))


async def _wait_for_lane(store: Store, session_id: str, owner: str, terms: LaneTerms) -> Lease:
    until = store.clock.now() + terms.patience
    while (lease := await _take(store, session_id, owner, terms.ttl)) is None:
        if store.clock.now() >= until:
            raise SessionBusyError(f"session {session_id} is being talked to by another process")
        await store.clock.sleep(terms.poll)
    return lease


async def _take(store: Store, session_id: str, owner: str, ttl: float) -> Lease | None:
    """The lease, or None. One that is granted while we are being cancelled is given back: nobody would hold it."""

    def take(tx: Tx) -> Lease | None:
        return queue.hold_lane(tx, INBOX, session_id, owner, ttl=ttl, now=store.clock.now())

    taking = asyncio.ensure_future(store.write(take))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        if (lease := await taking) is not None:
            await _release(store, session_id, lease)
        raise


async def _release(store: Store, session_id: str, lease: Lease) -> None:
    with suppress(StaleError):  # lost already: there is nothing to let go
        await store.write(lambda tx: queue.release_lane(tx, INBOX, session_id, lease))


async def _keep(store: Store, lane: Lane, ttl: float) -> None:
    while True:
        await store.clock.sleep(ttl / 3)
        try:
            lane.lease = await store.write(lambda tx: leases.renew(tx, lane.lease, ttl=ttl, now=store.clock.now()))
        except StaleError:
            return  # the next write of the turn finds out and ends it
        except StoreError as error:  # the next beat may succeed, and the lane is ours until someone takes it
            log.warning("the lane of session %s could not be kept: %s", lane.session_id, error.line())
