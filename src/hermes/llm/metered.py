"""Models whose tokens are counted, as the endpoint says or else estimated, and whose requests are limited."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct, field

from hermes.llm.events import Completed, ModelEvent, ModelFailed, ReasoningPiece, TextPiece, Usage
from hermes.llm.model import Model, ModelRequest
from hermes.llm.tokens import estimate_request, estimate_tokens
from hermes.types import Spent


class Spending(Struct):
    """What was spent and is not written down yet, by the model's name."""

    unwritten: dict[str, Spent] = field(default_factory=dict)

    def add(self, name: str, spent: Spent) -> None:
        before = self.unwritten.get(name)
        self.unwritten[name] = spent if before is None else before + spent

    def take(self) -> dict[str, Spent]:
        """All of it, to be written down in the next commit; what that cannot commit is not counted."""
        taken, self.unwritten = self.unwritten, {}
        return taken


class _Wrapper:
    """The part of a `Model` that another one answers as it is."""

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
    """A `Model` that answers as another one does and adds up what it spends."""

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
        finally:  # also when nobody wants to hear the rest
            if usage is not None or said:
                self._spending.add(self.name, _spent(request, usage, said))


class Limited(_Wrapper):
    """A `Model` for one turn and its sub-agents, which answers `most` requests and fails each further one."""

    def __init__(self, model: Model, most: int) -> None:
        super().__init__(model)
        self._most = most
        self._asked = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self._asked == self._most:
            line = f"the turn has used up its {self._most:,} model requests; `agent.max_requests` allows more"
            yield ModelFailed("bad_reply", line, retryable=False)
            return
        self._asked += 1
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                yield event


def _spent(request: ModelRequest, usage: Usage | None, said: list[str]) -> Spent:
    if usage is not None:
        return Spent(1, 0, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    asked = estimate_request(request.messages, request.tools) if request.tokens is None else request.tokens
    return Spent(1, 1, asked, estimate_tokens("".join(said)))
