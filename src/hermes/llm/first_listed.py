"""A model without a name: the first one that its endpoint lists."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from hermes.errors import ModelError
from hermes.llm.discover import ListedModel
from hermes.llm.events import ModelEvent, ModelFailed
from hermes.llm.model import Model, ModelRequest

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
