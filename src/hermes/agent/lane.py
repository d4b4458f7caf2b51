"""A session's lane: whoever holds it may speak in the session, one turn after another, over all processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from hermes.db import queue
from hermes.db.engine import Tx
from hermes.db.leases import Lease
from hermes.errors import SessionBusyError
from hermes.store.store import Store
from hermes.store.tenure import Claim, Tenure, kept, take

T = TypeVar("T")
SESSIONS = "session"
"""Whose lanes are sessions. The gateway holds a lane of its inbox around this one: no name of theirs may meet."""


@dataclass(frozen=True, slots=True)
class LaneTerms:
    """Seconds: `ttl` without a sign of life frees a lane; who wants one asks every `poll`, for `patience` at most."""

    ttl: float = 30.0
    poll: float = 0.1
    patience: float = 120.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane that is held. `check` inside a transaction proves that it still is."""

    session_id: str
    tenure: Tenure

    def check(self, tx: Tx) -> None:
        """Raise StaleError when another process has taken over."""
        self.tenure.check(tx)

    async def write_last(self, store: Store, run: Callable[[Tx], T]) -> T:
        """Run `run` and let the lane go in one transaction. Raises StaleError when another process has taken over."""

        def write(tx: Tx) -> T:
            self.check(tx)
            written = run(tx)
            queue.release_lane(tx, SESSIONS, self.session_id, self.tenure.lease)
            return written

        written = await store.write(write)
        self.tenure.is_over = True
        return written


@asynccontextmanager
async def hold_lane(store: Store, session_id: str, owner: str, terms: LaneTerms) -> AsyncIterator[Lane]:
    """Hold the lane of a session; wait for whoever has it, and raise SessionBusyError when that takes too long."""
    async with enter_lane(store, session_id, owner, terms, _do_nothing) as (lane, _):
        yield lane


@asynccontextmanager
async def enter_lane(
    store: Store, session_id: str, owner: str, terms: LaneTerms, begin: Callable[[Tx], T]
) -> AsyncIterator[tuple[Lane, T]]:
    """Hold the lane of a session as `hold_lane` does, and run `begin` in the transaction that takes it."""
    begun: list[T] = []

    def hold(tx: Tx) -> Lease | None:
        lease = queue.hold_lane(tx, SESSIONS, session_id, owner, ttl=terms.ttl, now=store.clock.now())
        if lease is not None:
            begun.append(begin(tx))
        return lease

    def release(tx: Tx, lease: Lease) -> None:
        queue.release_lane(tx, SESSIONS, session_id, lease)

    claim = Claim(f"the lane of session {session_id}", hold, release, terms.ttl)
    async with kept(store, claim, await _wait_for_lane(store, session_id, claim, terms)) as tenure:
        yield Lane(session_id, tenure), begun[-1]


def _do_nothing(_: Tx) -> None:
    pass


async def _wait_for_lane(store: Store, session_id: str, claim: Claim, terms: LaneTerms) -> Tenure:
    until = store.clock.now() + terms.patience
    while (tenure := await take(store, claim)) is None:
        if store.clock.now() >= until:
            raise SessionBusyError(f"session {session_id} is being talked to by another process")
        await store.clock.sleep(terms.poll)
    return tenure
