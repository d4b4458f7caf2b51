"""The models that one endpoint offers: their list, asked for now and then, each of them to talk to, and the first that
talks, where no model is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing

from msgspec import Struct

from hermes.clock import Clock
from hermes.errors import ModelError
from hermes.llm.discover import ListedModel, NoModelListError, talking
from hermes.llm.events import ModelEvent, ModelFailed
from hermes.llm.model import Model, ModelRequest
from hermes.llm.tool_use import ToolAbility

FRESH = 60.0
"""Seconds for which a list is not asked for again."""


class ModelOffer(Struct):
    """What can be chosen at the endpoint that is configured. Nothing is asked of it before the first `list`."""

    endpoint: str
    """Where it is, for people: without a password."""
    default: str
    """The configured model's name; "" for the first of the list that talks."""
    find: Callable[[], Coroutine[None, None, Sequence[ListedModel]]]
    open: Callable[[str, int | None], Model]
    """A model by its name, with its context length where that is known. Close it."""
    clock: Clock
    tool_use: ToolAbility | None = None
    """Which of them are offered tools; None where all are."""
    _asking: asyncio.Task[Sequence[ListedModel]] | None = None
    _asked_at: float = 0.0
    _listed: Sequence[ListedModel] = ()
    _talking: Sequence[str] = ()

    @property
    def answering(self) -> str:
        """The model that answers where a session chose none; "" while that is not known."""
        return self.default or next(iter(self._talking), "")

    @property
    def remark(self) -> str:
        """What is to be said where nobody chose among several models; "" while there is nothing to say."""
        if self.default or len(self._talking) < 2:
            return ""
        return (
            f"{self.answering} answers, the first of {len(self._talking)} at {self.endpoint}; `hermes model` shows "
            "them and lets you choose one."
        )

    async def list(self) -> Sequence[ListedModel]:
        """The models in the endpoint's order, as they were a minute ago at most. Raises ModelError when it does not
        say.

        All who ask at the same time wait for one answer, and who gives up does not take it from the others.
        """
        stale = self.clock.now() - self._asked_at > FRESH
        if self._asking is None or (self._asking.done() and (stale or _failed(self._asking))):
            self._asked_at = self.clock.now()
            self._asking = asyncio.create_task(self.find())
            self._asking.add_done_callback(_failed)
        listed = await asyncio.shield(self._asking)
        self._listed, self._talking = listed, talking([one.name for one in listed])
        return listed

    def context_length(self, name: str) -> int | None:
        """How long a model's context is, where the list that came last tells it."""
        return next((one.context_length for one in self._listed if one.name == name), None)


def _failed(asked: asyncio.Task[Sequence[ListedModel]]) -> bool:
    """Whether there was no list. Having looked, nobody is warned of an error that nobody waited for."""
    return asked.cancelled() or asked.exception() is not None


HOW_TO_NAME = "`hermes config set model.default NAME` names the model"
UNNAMED = "default"
"""What an endpoint that lists nothing is asked for."""


class ConfiguredModel:
    """The `Model` that answers where a session chose none. Opening it needs no network: where none is named, the
    endpoint is asked for its list with the first request, and the name is "" until then. Its context has `length`
    tokens; where that `is_guess`, what the list tells counts as soon as it is known."""

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
        told = self._offer.context_length(self.name) if self._is_guess else None
        return told or self._length

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._found is None:
            try:
                if not self._offer.default:
                    await self._offer.list()
                elif self._is_guess:
                    self._look_beside()
            except ModelError as error:
                advice = f" ({HOW_TO_NAME})" if isinstance(error, NoModelListError) else ""
                yield ModelFailed("refused", f"{error.line()}{advice}", retryable=True)
                return
            self._found = self._offer.open(self._offer.answering or UNNAMED, None)
        async with aclosing(self._found.stream(request)) as events:
            async for event in events:
                yield event

    def _look_beside(self) -> None:
        """Ask for the list, and let the request go on meanwhile: it is known which model answers."""
        self._looking = asyncio.create_task(self._offer.list())
        self._looking.add_done_callback(_failed)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._found is not None:
            await self._found.close()
