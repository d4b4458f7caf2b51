"""Reviews of sessions that were left before a review had read them to the end; they run outside of any turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from hermes.agent.agent import Agent
from hermes.agent.review import review_now
from hermes.errors import HermesError
from hermes.store.store import Store
from hermes.types import Session

log = logging.getLogger("hermes.review")

MOST = 20
"""Sessions that are looked at after one start."""


async def review_leftovers(
    store: Store, ours: Callable[[Session], bool], use: Callable[[Session], AbstractAsyncContextManager[Agent]]
) -> None:
    """Review those sessions that are `ours` and were left before now, one after another; `use` lends an agent of each.

    Must not raise but for being cancelled: what is not read stays due.
    """
    try:
        for session in filter(ours, await store.unreviewed(MOST)):
            async with use(session) as agent:
                await review_now(agent)
    except HermesError as error:
        log.warning("what was left to review could not be read: %s", error.line())
