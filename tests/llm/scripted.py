"""A scripted model for the tests of anything that calls a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeAlias

from hermes.llm.events import Completed, ModelEvent, ModelFailed, ReasoningPiece, Reply, TextPiece
from hermes.llm.model import ModelRequest

ScriptStep: TypeAlias = ModelEvent | asyncio.Event
"""An event to yield, or one to wait for before continuing."""

ScriptedAnswer: TypeAlias = Reply | ModelFailed | Sequence[ScriptStep]
"""A complete reply, a failure, or all steps of a stream; the last step must be Completed or ModelFailed."""


class ScriptedModel:
    """A `Model` that gives the responses of a script in order, or those of a function, and records its requests.

    A reply is streamed in pieces of `piece` characters. After the end of the script, every call fails.
    """

    def __init__(
        self,
        script: Iterable[ScriptedAnswer] | Callable[[ModelRequest], ScriptedAnswer],
        *,
        name: str = "scripted",
        context_length: int = 128_000,
        piece: int = 16,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.closed = False
        self._answer = script if callable(script) else _read_in_order(script)
        self.name = name
        self.context_length = context_length
        self._piece = piece

    async def close(self) -> None:
        self.closed = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the next response. Other tasks get a turn between any two events, as with a real endpoint."""
        self.requests.append(request)
        for step in self._steps(self._answer(request)):
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                await asyncio.sleep(0)
                yield step

    def _steps(self, answer: ScriptedAnswer) -> Sequence[ScriptStep]:
        if isinstance(answer, Reply):
            return [
                *(ReasoningPiece(text) for text in _cut(answer.reasoning, self._piece)),
                *(TextPiece(text) for text in _cut(answer.text, self._piece)),
                Completed(answer),
            ]
        if isinstance(answer, ModelFailed):
            return [*(TextPiece(text) for text in _cut(answer.partial.text, self._piece)), answer]
        if not answer or not isinstance(answer[-1], Completed | ModelFailed):
            raise ValueError("the last step of a scripted stream must be Completed or ModelFailed")
        return answer


def _read_in_order(script: Iterable[ScriptedAnswer]) -> Callable[[ModelRequest], ScriptedAnswer]:
    answers = iter(script)
    over = ModelFailed("bad_request", "the script has no further answer", retryable=False)
    return lambda _request: next(answers, over)


def _cut(text: str, piece: int) -> list[str]:
    return [text[start : start + piece] for start in range(0, len(text), piece)]
