"""A session's lane: whoever holds it may speak in the session, one turn after another, over all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from hermes.db import leases, queue
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import SessionBusyError, StaleError
from hermes.store.store import Store

INBOX = "inbox"
"""The queue whose lanes are sessions."""

TTL = 30.0
POLL = 0.1
PATIENCE = 120.0


class Lane:
    """A lane that is held. `check` inside a transaction proves that it still is."""

    def __init__(self, session_id: str, lease: Lease) -> None:
        self.session_id = session_id
        self.lease = lease

    def check(self, tx: Tx) -> None:
        """Raise StaleError when another process has taken over."""
        leases.check(tx, self.lease)


@asynccontextmanager
async def hold_lane(store: Store, session_id: str, owner: str, *, patience: float = PATIENCE) -> AsyncIterator[Lane]:
    """Hold the lane of a session; wait for whoever has it, and raise SessionBusyError when that takes too long."""
    lane = Lane(session_id, await _wait_for_lane(store, session_id, owner, patience))
    heart = asyncio.create_task(_keep(store, lane))
    try:
        yield lane
    finally:
        heart.cancel()
        with suppress(asyncio.CancelledError):
            await heart
        with suppress(StaleError):  # lost already: there is nothing to let go
            await store.write(lambda tx: queue.release_lane(tx, INBOX, session_id, lane.lease))


async def _wait_for_lane(store: Store, session_id: str, owner: str, patience: float) -> Lease:
    def take(tx: Tx) -> Lease | None:
        return queue.hold_lane(tx, INBOX, session_id, owner, ttl=TTL, now=store.clock.now())

    until = store.clock.now() + patience
    while (lease := await store.write(take)) is None:
        if store.clock.now() >= until:
            raise SessionBusyError(f"session {session_id} is being talked to by another process")
        await store.clock.sleep(POLL)
    return lease


async def _keep(store: Store, lane: Lane) -> None:
    while True:
        await store.clock.sleep(TTL / 3)
        try:
            lane.lease = await store.write(lambda tx: leases.renew(tx, lane.lease, ttl=TTL, now=store.clock.now()))
        except StaleError:
            return  # the next write of the turn finds out and ends it
