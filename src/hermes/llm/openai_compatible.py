"""A model behind any OpenAI-compatible endpoint. How one wants to be asked is learned from its refusals."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from hermes.clock import Clock, SystemClock
from hermes.llm.assemble import LONGEST, Assembler
from hermes.llm.connection import ConnectionPool, OpenResponse
from hermes.llm.endpoint import Endpoint
from hermes.llm.events import Completed, ModelEvent, ModelFailed, Retrying
from hermes.llm.failures import ModelFault, from_status, read_error
from hermes.llm.model import ModelRequest, tool_to_wire
from hermes.llm.patience import Patience, Retries, Timeouts, read_retry_after
from hermes.llm.reading import read_reply
from hermes.types import Json

REFUSALS = frozenset({400, 422})
"""The statuses with which an endpoint may mean the form of a request."""

MANY = 100
"""Messages of a request from which on it is worth to load a quicker way of writing JSON."""


class Dialect(Struct, frozen=True):
    """What may be in a request's body."""

    asks_usage: bool = True
    limit_field: str = "max_tokens"

    def encode(self, model: str, request: ModelRequest) -> bytes:
        """The request's body. Half characters, which JSON could carry but few endpoints accept, become `?`."""
        body: dict[str, Json] = {"model": model, "messages": list(request.messages), "stream": True}
        if request.tools:
            body["tools"] = [tool_to_wire(tool) for tool in request.tools]
        if request.response_format is not None:
            body["response_format"] = request.response_format
        if self.asks_usage:
            body["stream_options"] = {"include_usage": True}
        if request.max_tokens is not None:
            body[self.limit_field] = request.max_tokens
        if len(request.messages) >= MANY:
            import orjson  # the same bytes in a tenth of the time

            with suppress(TypeError):  # half characters, numbers of more than 64 bits: only the other way writes them
                return orjson.dumps(body)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def after_refusal(self, request: ModelRequest, message: str) -> Dialect | None:
        """The form to try next, or None when there is none left. Each change is made once."""
        if request.max_tokens is not None and self.limit_field == "max_tokens" and "max_completion_tokens" in message:
            return replace(self, limit_field="max_completion_tokens")
        # Few endpoints that do not know `stream_options` say so by its name.
        return replace(self, asks_usage=False) if self.asks_usage else None


PATH = "/chat/completions"
LARGEST_ERROR = 64 * 1024


class OpenAICompatible:
    """A `Model` over HTTP. Its key is in no message, repr or log."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        context_length: int,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        longest_reply: int = LONGEST,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Opens nothing yet. Raises SettingsError for a URL or key that cannot be used."""
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
        """Attempts until one gives output, ends well, or no further one is due."""
        patience = Patience(self._timeouts.total)
        attempt = 1
        while True:
            silent, failed = True, None
            async with aclosing(self._attempt(request, patience)) as events:
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

    async def _attempt(self, request: ModelRequest, patience: Patience) -> AsyncGenerator[ModelEvent, None]:
        """One reply, or a ModelFailed with what came of it."""
        assembler = Assembler(f"{int(self._chance() * 16**8):08x}", self._longest_reply)
        try:
            async with self._ask(request, patience) as answer:
                async with aclosing(read_reply(answer, assembler, self._endpoint)) as deltas:
                    async for delta in deltas:
                        yield delta
        except ModelFault as fault:
            yield fault.to_event(assembler.reply())
            return
        yield Completed(assembler.reply())

    @asynccontextmanager
    async def _ask(self, request: ModelRequest, patience: Patience) -> AsyncGenerator[OpenResponse, None]:
        """The endpoint's answer once it accepts the request's form; Fault for any other."""
        dialect = self._dialect
        while True:
            body = dialect.encode(self.name, request)
            async with self._connection.exchange("POST", PATH, patience, body) as answer:
                if answer.status == 200:
                    self._dialect = dialect
                    yield answer
                    return
                error = read_error(await answer.text(LARGEST_ERROR))
            fault = from_status(
                self._endpoint, answer.status, error, read_retry_after(answer.headers, self._clock.now())
            )
            adapted = dialect.after_refusal(request, error.message) if fault.kind == "bad_request" else None
            if adapted is None or answer.status not in REFUSALS:
                raise fault
            if request.may_resend is not None and not await request.may_resend():
                raise fault
            dialect = adapted
