"""Models as commands and the page see them: trying one by asking for one word, and the model of the memory server."""

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
    """A model that was asked once. `problem` says why it did not answer."""

    name: str
    seconds: float
    problem: str = ""


class MemoryModelState(Struct, frozen=True):
    """Which model the memory server of this machine asks, without its key."""

    source: str = "off"
    """`off`, `host`, `own` or `env`."""
    url: str = ""
    name: str = ""
    has_key: bool = False
    guests: bool = False
    described: Sequence[str] = ()


class MemoryModelDesk(Protocol):
    """The model of the memory server, which a page may see and change only through a command's own code. It blocks."""

    def read(self, app: App) -> MemoryModelState: ...

    def test(self, app: App, given: Mapping[str, Any]) -> TriedModel:
        """Ask the model that these fields name once. Raises HermesError for fields that cannot be used."""

    def save(self, app: App, given: Mapping[str, Any]) -> None:
        """Keep these fields; the others stay."""


async def try_model(model: Model) -> TriedModel:
    """Ask a model, and close it."""
    began = time.perf_counter()
    try:
        async with aclosing(model.stream(ModelRequest(QUESTION, max_tokens=MAX_ANSWER_TOKENS))) as events:
            last = [event async for event in events][-1]
    finally:
        await model.close()
    problem = last.message if isinstance(last, ModelFailed) else "" if isinstance(last, Completed) else "no answer"
    return TriedModel(model.name, round(time.perf_counter() - began, 2), problem)
