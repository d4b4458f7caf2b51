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

MOST = 20
"""Sessions that are reviewed after one start."""
LOOKED_AT, TITLES = 200, 5
"""Sessions without a title that are looked at, and of ours among them those that get one."""


async def see_to_leftovers(
    store: Store, ours: Callable[[Session], bool], use: Callable[[Session], AbstractAsyncContextManager[Agent]]
) -> None:
    """Review and name those sessions that are `ours` and were left before now, one after another; `use` lends an agent
    of each.

    Must not raise but for being cancelled: what is not done stays due.
    """
    try:
        for session in filter(ours, await store.unreviewed(MOST)):
            async with use(session) as agent:
                await review_now(agent)
        for session in islice(filter(ours, await store.untitled(LOOKED_AT)), TITLES):
            async with use(session) as agent:
                await title_now(agent)
    except HermesError as error:
        log.warning("what was left to review and to name could not be read: %s", error.line())
