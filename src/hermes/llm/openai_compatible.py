"""A model behind any OpenAI-compatible endpoint. Refused requests teach it which fields the endpoint supports."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from hermes.clock import Clock, SystemClock
from hermes.llm.assemble import MAX_REPLY_CHARS, Assembler
from hermes.llm.connection import ConnectionPool, OpenResponse
from hermes.llm.endpoint import Endpoint
from hermes.llm.events import Completed, ModelEvent, ModelFailed, Retrying
from hermes.llm.failures import ModelFault, from_status, read_error
from hermes.llm.model import ModelRequest, tool_to_wire
from hermes.llm.reading import read_reply
from hermes.llm.timeouts import Retries, TimeBudget, Timeouts, read_retry_after
from hermes.types import Json

REFUSAL_STATUSES = frozenset({400, 422})
"""The statuses with which an endpoint may reject a request's fields."""

ORJSON_MIN_MESSAGES = 100
"""Requests with fewer messages do not load orjson."""


class Dialect(Struct, frozen=True):
    """The optional fields of a request's body that an endpoint supports."""

    asks_usage: bool = True
    limit_field: str = "max_tokens"

    def encode(self, model: str, request: ModelRequest) -> bytes:
        """Return the request's body. Lone surrogates, which few endpoints accept, become `?`."""
        body: dict[str, Json] = {"model": model, "messages": list(request.messages), "stream": True}
        if request.tools:
            body["tools"] = [tool_to_wire(tool) for tool in request.tools]
        if request.response_format is not None:
            body["response_format"] = request.response_format
        if self.asks_usage:
            body["stream_options"] = {"include_usage": True}
        if request.max_tokens is not None:
            body[self.limit_field] = request.max_tokens
        if len(request.messages) >= ORJSON_MIN_MESSAGES:
            import orjson  # the same bytes in a tenth of the time

            with suppress(TypeError):  # orjson writes no lone surrogates and no numbers above 64 bits
                return orjson.dumps(body)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def after_refusal(self, request: ModelRequest, message: str) -> Dialect | None:
        """Return the dialect to try next, or None after all were tried. Each field is changed once."""
        if request.max_tokens is not None and self.limit_field == "max_tokens" and "max_completion_tokens" in message:
            return replace(self, limit_field="max_completion_tokens")
        # Few endpoints without `stream_options` name it in their error.
        return replace(self, asks_usage=False) if self.asks_usage else None


PATH = "/chat/completions"
MAX_ERROR_BYTES = 64 * 1024


class OpenAICompatible:
    """A `Model` over HTTP. Its key appears in no message, repr or log."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        context_length: int,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        longest_reply: int = MAX_REPLY_CHARS,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Create the model without connecting. Raises SettingsError for an unusable URL or key."""
        self._endpoint = Endpoint.parse(base_url, api_key)
        self.name = model
        self.context_length = context_length
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._longest_reply = longest_reply
        self._clock = clock or SystemClock()
        self._chance = chance
        self._dialect = Dialect()
        self._connection = ConnectionPool(self._endpoint, self._timeouts)

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._endpoint.netloc}, {self.name})"

    async def close(self) -> None:
        await self._connection.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the events of one call; retry failures that come before any output, up to the retry limits."""
        budget = TimeBudget(self._timeouts.total)
        attempt = 1
        while True:
            silent, failed = True, None
            async with aclosing(self._attempt(request, budget)) as events:
                async for event in events:
                    if isinstance(event, ModelFailed):
                        failed = event
                    else:
                        silent = False
                        yield event
            if failed is None:
                return
            wait = self._retries.wait_after(attempt, failed, self._chance) if silent else None
            if wait is None:
                yield failed
                return
            yield Retrying(attempt, wait, failed.message)
            await self._clock.sleep(wait)
            attempt += 1

    async def _attempt(self, request: ModelRequest, budget: TimeBudget) -> AsyncGenerator[ModelEvent, None]:
        """Yield one reply, or a ModelFailed with the partial reply."""
        assembler = Assembler(f"{int(self._chance() * 16**8):08x}", self._longest_reply)
        try:
            async with self._ask(request, budget) as answer:
                async with aclosing(read_reply(answer, assembler, self._endpoint)) as deltas:
                    async for delta in deltas:
                        yield delta
        except ModelFault as fault:
            yield fault.to_event(assembler.reply())
            return
        yield Completed(assembler.reply())

    @asynccontextmanager
    async def _ask(self, request: ModelRequest, budget: TimeBudget) -> AsyncGenerator[OpenResponse, None]:
        """Yield the response once the endpoint accepts the request. Raises ModelFault for any other response."""
        dialect = self._dialect
        while True:
            body = dialect.encode(self.name, request)
            async with self._connection.exchange("POST", PATH, budget, body) as answer:
                if answer.status == 200:
                    self._dialect = dialect
                    yield answer
                    return
                error = read_error(await answer.text(MAX_ERROR_BYTES))
            fault = from_status(
                self._endpoint, answer.status, error, read_retry_after(answer.headers, self._clock.now())
            )
            adapted = dialect.after_refusal(request, error.message) if fault.kind == "bad_request" else None
            if adapted is None or answer.status not in REFUSAL_STATUSES:
                raise fault
            if request.may_resend is not None and not await request.may_resend():
                raise fault
            dialect = adapted
