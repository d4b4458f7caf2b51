"""The models of the configured endpoint: a cached list, each of them to open, and a default where none is
configured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import ModelError
from hermes.llm.discover import ListedModel, NoModelListError, chat_models
from hermes.llm.events import ModelEvent, ModelFailed
from hermes.llm.model import Model, ModelRequest
from hermes.llm.tool_use import ToolAbility

LIST_CACHE_SECONDS = 60.0
"""A list is reused for this long."""


class ModelOffer(Struct):
    """The models to choose from at the configured endpoint. The endpoint is first contacted by `list`."""

    endpoint: str
    """The address for people, without a password."""
    default: str
    """The configured model; "" for the first chat model of the list."""
    find: Callable[[], Coroutine[None, None, Sequence[ListedModel]]]
    open: Callable[[str, int | None], Model]
    """Open a model by name, with its context length if known. The caller closes it."""
    clock: Clock
    tool_use: ToolAbility | None = None
    """Decides which models are offered tools; None if all are."""
    _asking: asyncio.Task[Sequence[ListedModel]] | None = None
    _asked_at: float = 0.0
    _listed: Sequence[ListedModel] = ()
    _talking: Sequence[str] = ()

    @property
    def answering(self) -> str:
        """The model for sessions that chose none; "" while that is unknown."""
        return self.default or next(iter(self._talking), "")

    @property
    def remark(self) -> str:
        """A notice for people if several models exist and none was chosen; else ""."""
        if self.default or len(self._talking) < 2:
            return ""
        return (
            f"{self.answering} answers, the first of {len(self._talking)} at {self.endpoint}; `hermes model` shows "
            "them and lets you choose one."
        )

    async def list(self) -> Sequence[ListedModel]:
        """Return the models in the endpoint's order, at most a minute old. Raises ModelError if it cannot list them.

        Concurrent callers share one request; cancelling one caller does not cancel the request for the others.
        """
        stale = self.clock.now() - self._asked_at > LIST_CACHE_SECONDS
        if self._asking is None or (self._asking.done() and (stale or _failed(self._asking))):
            self._asked_at = self.clock.now()
            self._asking = asyncio.create_task(self.find())
            self._asking.add_done_callback(_failed)
        listed = await asyncio.shield(self._asking)
        self._listed, self._talking = listed, chat_models([one.name for one in listed])
        return listed

    def context_length(self, name: str) -> int | None:
        """Return a model's context length if the latest list has it."""
        return next((one.context_length for one in self._listed if one.name == name), None)


def _failed(request: asyncio.Task[Sequence[ListedModel]]) -> bool:
    """Return True if the request failed. Reading the exception also prevents asyncio's warning that nobody did."""
    return request.cancelled() or request.exception() is not None


HOW_TO_NAME = "`hermes config set model.default NAME` names the model"
UNNAMED_MODEL = "default"
"""The model name sent to an endpoint that lists no models."""


class ConfiguredModel:
    """The `Model` for sessions that chose none. Opening it needs no network: if no model is configured, the first
    request fetches the endpoint's list, and the name is "" until then. Its context has `length` tokens; if that
    `is_guess`, the length from the list is used once it is known."""

    def __init__(self, offer: ModelOffer, length: int, *, is_guess: bool) -> None:
        self._offer = offer
        self._length = length
        self._is_guess = is_guess
        self._found: Model | None = None
        self._looking: asyncio.Task[Sequence[ListedModel]] | None = None

    @property
    def name(self) -> str:
        return self._found.name if self._found else self._offer.answering

    @property
    def context_length(self) -> int:
        listed = self._offer.context_length(self.name) if self._is_guess else None
        return listed or self._length

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._found is None:
            try:
                if not self._offer.default:
                    await self._offer.list()
                elif self._is_guess:
                    self._fetch_list_in_background()
            except ModelError as error:
                advice = f" ({HOW_TO_NAME})" if isinstance(error, NoModelListError) else ""
                yield ModelFailed("refused", f"{error.line()}{advice}", retryable=True)
                return
            self._found = self._offer.open(self._offer.answering or UNNAMED_MODEL, None)
        async with aclosing(self._found.stream(request)) as events:
            async for event in events:
                yield event

    def _fetch_list_in_background(self) -> None:
        """Fetch the list in the background: the request need not wait, since the model is known."""
        self._looking = asyncio.create_task(self._offer.list())
        self._looking.add_done_callback(_failed)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._found is not None:
            await self._found.close()
