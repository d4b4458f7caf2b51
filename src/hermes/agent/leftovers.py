"""Reviews and titles of sessions that ended without them. This work runs outside of turns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import islice

from hermes.agent.agent import Agent
from hermes.agent.review import review_now
from hermes.agent.titles import title_now
from hermes.errors import HermesError
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.review")

MAX_CANDIDATE_SESSIONS = 200
"""How many sessions of all sources are read to find ours."""
MAX_REVIEWS, MAX_TITLES = 20, 5
"""Limits for one run."""
MAX_FAILURES_IN_A_ROW = 3
"""A run stops after this many failed reviews in a row: the model may be unreachable."""
LEFTOVERS_INTERVAL_SECONDS = 600.0
"""Long-running processes repeat the work at this interval."""


async def process_leftovers(
    store: Store,
    ours: Callable[[Session], bool],
    use: Callable[[Session], AbstractAsyncContextManager[Agent]],
    left_before: float,
) -> None:
    """Review and title the sessions for which `ours` is True that ended before `left_before`, or failed since, one
    after another; failed ones come last. `use` opens an agent for a session.

    Must not raise, except when cancelled. Work that is not done stays due.
    """
    try:
        failures = 0
        for session in islice(filter(ours, await store.unreviewed(left_before, MAX_CANDIDATE_SESSIONS)), MAX_REVIEWS):
            async with use(session) as agent:
                failures = 0 if await review_now(agent) else failures + 1
            if failures == MAX_FAILURES_IN_A_ROW:
                break
        for session in islice(filter(ours, await store.untitled(left_before, MAX_CANDIDATE_SESSIONS)), MAX_TITLES):
            async with use(session) as agent:
                await title_now(agent)
    except HermesError as error:
        log.warning("sessions without a review or title could not be read: %s", error.line())
