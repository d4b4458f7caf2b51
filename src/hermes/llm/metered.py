"""Wrappers of `Model`: one counts its tokens (or estimates them), one limits its requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct, field

from hermes.llm.events import Completed, ModelEvent, ModelFailed, ReasoningPiece, TextPiece, Usage
from hermes.llm.model import Model, ModelRequest
from hermes.llm.tokens import estimate_request, estimate_tokens
from hermes.types import Spent


class Spending(Struct):
    """Tokens spent but not yet stored, by model name."""

    unwritten: dict[str, Spent] = field(default_factory=dict)

    def add(self, name: str, spent: Spent) -> None:
        before = self.unwritten.get(name)
        self.unwritten[name] = spent if before is None else before + spent

    def take(self) -> dict[str, Spent]:
        """Return and clear all spending, to be stored in the next commit. If that commit fails, it is not counted."""
        taken, self.unwritten = self.unwritten, {}
        return taken


class _Wrapper:
    """Base class that passes name, context length and `close` to the wrapped model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def context_length(self) -> int:
        return self._model.context_length

    async def close(self) -> None:
        await self._model.close()


class Metered(_Wrapper):
    """A `Model` that passes requests to another one and adds up the tokens spent."""

    def __init__(self, model: Model, spending: Spending) -> None:
        super().__init__(model)
        self._spending = spending

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        usage: Usage | None = None
        said: list[str] = []
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, TextPiece | ReasoningPiece):
                        said.append(event.text)
                    elif isinstance(event, Completed | ModelFailed):
                        reply = event.reply if isinstance(event, Completed) else event.partial
                        usage = reply.usage
                        said += [call.name + call.arguments for call in reply.tool_calls]
                    yield event
        finally:  # also when the consumer leaves early
            if usage is not None or said:
                self._spending.add(self.name, _spent(request, usage, said))


class Limited(_Wrapper):
    """A `Model` for one turn and its sub-agents. It passes on `max_requests` requests and fails all further ones."""

    def __init__(self, model: Model, max_requests: int) -> None:
        super().__init__(model)
        self._max_requests = max_requests
        self._requests = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._requests == self._max_requests:
            line = f"the turn has used up its {self._max_requests:,} model requests; `agent.max_requests` allows more"
            yield ModelFailed("bad_reply", line, retryable=False)
            return
        self._requests += 1
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                yield event


def _spent(request: ModelRequest, usage: Usage | None, said: list[str]) -> Spent:
    if usage is not None:
        return Spent(1, 0, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    asked = estimate_request(request.messages, request.tools) if request.tokens is None else request.tokens
    return Spent(1, 1, asked, estimate_tokens("".join(said)))
