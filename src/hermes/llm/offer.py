"""The models that one endpoint offers: their list, asked for now and then, and each of them to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from hermes.clock import Clock
from hermes.llm.discover import ListedModel
from hermes.llm.model import Model

FRESH = 60.0
"""Seconds for which a list is not asked for again."""


class ModelOffer:
    """What can be chosen at the endpoint that is configured. Nothing is asked of it before the first `list`."""

    def __init__(
        self,
        endpoint: str,
        default: str,
        find: Callable[[], Coroutine[None, None, Sequence[ListedModel]]],
        make: Callable[[str, int | None], Model],
        clock: Clock,
    ) -> None:
        self.endpoint = endpoint
        """Where it is, for people: without a password."""
        self.default = default
        """The configured model's name; "" for the first that is listed."""
        self.open = make
        """A model by its name, with its context length where that is known. Close it."""
        self._find = find
        self._clock = clock
        self._asking: asyncio.Task[Sequence[ListedModel]] | None = None
        self._asked_at = 0.0

    async def list(self) -> Sequence[ListedModel]:
        """The models by name, as they were a minute ago at most. Raises ModelError when the endpoint does not say.

        All who ask at the same time wait for one answer, and who gives up does not take it from the others.
        """
        stale = self._clock.now() - self._asked_at > FRESH
        if self._asking is None or (self._asking.done() and (stale or _failed(self._asking))):
            self._asked_at = self._clock.now()
            self._asking = asyncio.create_task(self._find())
            self._asking.add_done_callback(_failed)
        return await asyncio.shield(self._asking)


def _failed(asked: asyncio.Task[Sequence[ListedModel]]) -> bool:
    """Whether there was no list. Having looked, nobody is warned of an error that nobody waited for."""
    return asked.cancelled() or asked.exception() is not None
