"""The models that one endpoint offers: their list, asked for now and then, each of them to talk to, and the first one
of the list, where no model is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing

from hermes.clock import Clock
from hermes.errors import ModelError
from hermes.llm.discover import ListedModel
from hermes.llm.events import ModelEvent, ModelFailed
from hermes.llm.model import Model, ModelRequest

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


UNNAMED = "default"
"""What an endpoint that lists nothing is asked for."""


class FirstListed:
    """A `Model` that asks the endpoint for its list with the first request, so that opening it needs no network."""

    def __init__(
        self, find: Callable[[], Awaitable[Sequence[ListedModel]]], make: Callable[[str], Model], context_length: int
    ) -> None:
        self.context_length = context_length
        self._find = find
        self._make = make
        self._found: Model | None = None

    @property
    def name(self) -> str:
        return self._found.name if self._found else UNNAMED

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._found is None:
            try:
                listed = await self._find()
            except ModelError as error:
                advice = "`hermes config set model.default NAME` names the model"
                yield ModelFailed("refused", f"{error.line()} ({advice})", retryable=True)
                return
            self._found = self._make(listed[0].name if listed else UNNAMED)
        async with aclosing(self._found.stream(request)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        if self._found is not None:
            await self._found.close()
