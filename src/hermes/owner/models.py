"""Models in commands and on the page: a trial request, and the model of the memory server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct

from hermes.app import App
from hermes.llm.events import Completed, ModelFailed
from hermes.llm.model import Model, ModelRequest

QUESTION = [{"role": "user", "content": "Answer with the one word: ready"}]
MAX_ANSWER_TOKENS = 200


class TriedModel(Struct, frozen=True):
    """The result of a trial request. `problem` is the reason for a failure, "" on success."""

    name: str
    seconds: float
    problem: str = ""


class MemoryModelState(Struct, frozen=True):
    """The model that this machine's memory server uses, without its key."""

    source: str = "off"
    """`off`, `host`, `own` or `env`."""
    url: str = ""
    name: str = ""
    has_key: bool = False
    guests: bool = False
    described: Sequence[str] = ()


class MemoryModelConsole(Protocol):
    """Access of the page to the memory server's model, through the code of a command. Blocks."""

    def read(self, app: App) -> MemoryModelState: ...

    def test(self, app: App, given: Mapping[str, Any]) -> TriedModel:
        """Send a trial request to the model in these fields. Raises HermesError for invalid fields."""

    def save(self, app: App, given: Mapping[str, Any]) -> None:
        """Store these fields; the others stay."""


async def try_model(model: Model) -> TriedModel:
    """Send a trial request to a model, and close it."""
    began = time.perf_counter()
    try:
        async with aclosing(model.stream(ModelRequest(QUESTION, max_tokens=MAX_ANSWER_TOKENS))) as events:
            last = [event async for event in events][-1]
    finally:
        await model.close()
    problem = last.message if isinstance(last, ModelFailed) else "" if isinstance(last, Completed) else "no answer"
    return TriedModel(model.name, round(time.perf_counter() - began, 2), problem)
