"""What sessions were left without: a review that has read them to the end, a title. It is done outside of any turn."""

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

LOOKED_AT = 200
"""Sessions that are looked at, for ours among them."""
REVIEWS, TITLES = 20, 5
"""Sessions that are reviewed and that get a title in one go."""
FAILURES = 3
"""Reviews that fail in a row before the others are left for later: the model may be away."""
AGAIN = 600.0
"""Seconds after which whoever goes on running looks again."""


async def see_to_leftovers(
    store: Store,
    ours: Callable[[Session], bool],
    use: Callable[[Session], AbstractAsyncContextManager[Agent]],
    left_before: float,
) -> None:
    """Review and name those sessions that are `ours` and were left before then, or failed since, one after another;
    `use` lends an agent of each. What failed comes last.

    Must not raise but for being cancelled: what is not done stays due.
    """
    try:
        failures = 0
        for session in islice(filter(ours, await store.unreviewed(left_before, LOOKED_AT)), REVIEWS):
            async with use(session) as agent:
                failures = 0 if await review_now(agent) else failures + 1
            if failures == FAILURES:
                break
        for session in islice(filter(ours, await store.untitled(left_before, LOOKED_AT)), TITLES):
            async with use(session) as agent:
                await title_now(agent)
    except HermesError as error:
        log.warning("what was left to review and to name could not be read: %s", error.line())
