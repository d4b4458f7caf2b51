"""A model behind any OpenAI-compatible endpoint. Refused requests teach it which fields the endpoint supports.

Read the body of a response: decode server-sent events from bytes and yield the pieces of the reply.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.clock import Clock, SystemClock
from hermes.llm.assemble import MAX_REPLY_CHARS, Assembler, MalformedChunk, StreamedError
from hermes.llm.connection import ConnectionPool, OpenResponse, Retries, TimeBudget, Timeouts, read_retry_after
from hermes.llm.events import Completed, Delta, ModelEvent, ModelFailed, Retrying
from hermes.llm.failures import ModelFault, bad_reply, from_status, from_stream, read_error, read_error_value
from hermes.llm.model import Endpoint, ModelRequest, tool_to_wire
from hermes.types import Json

BOM = "\ufeff".encode()


class ServerEvent(Struct, frozen=True):
    """A server-sent event: its name (empty if the server sent none) and its joined data lines."""

    name: str
    data: str


class EventDecoder:
    """Decodes bytes into events. Lines may end in CR, LF or CRLF; events without data are dropped."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.waiting = 0
        """Bytes of an event that is still incomplete."""
        self._at_start = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes."""
        # A final CR may be the first half of a CRLF: only the next byte completes its line.
        waiting = bool(self._pieces) and self._pieces[-1].endswith(b"\r")
        self._pieces.append(chunk)
        self.waiting += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk[:-1] and not waiting:
            return []
        lines = b"".join(self._pieces).splitlines(keepends=True)
        self._pieces = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        events = [event for line in lines if (event := self._take(line.rstrip(b"\r\n"))) is not None]
        self.waiting = sum(map(len, self._data)) + sum(map(len, self._pieces))
        return events

    def close(self) -> list[ServerEvent]:
        """Return the last event: servers may omit the empty line after it."""
        lines = [b"".join(self._pieces).rstrip(b"\r"), b""]
        self._pieces = []
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> ServerEvent | None:
        """Read one line and return the event that it ends, if any."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        field, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode(errors="replace")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"error":
            # Not in the standard: llama.cpp used to send its errors in a field of this name.
            self._name = "error"
            self._data.append(value)
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event


ENDLESS_EVENT = "an event without an end"
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_EVENT_BYTES = 16 * 1024 * 1024
MAX_START_BYTES = 1024
"""Blank bytes kept before the first byte that shows what the body is."""
USAGE_WAIT_SECONDS = 5.0
"""How long to wait for token counts, which are sent after the model has finished."""

BODY_END_WAIT_SECONDS = 0.25
"""How long to wait for the end of the body, so that the connection can be reused."""


async def read_reply(answer: OpenResponse, assembler: Assembler, endpoint: Endpoint) -> AsyncGenerator[Delta, None]:
    """Feed the whole body to `assembler` and yield what can be shown. Raises ModelFault unless the reply is
    complete."""
    start = await _read_start(answer)
    if start.lstrip()[:1] == b"{":
        body = start.decode(errors="replace") + await answer.text(MAX_BODY_BYTES)
        for delta in _feed(assembler, ServerEvent("", body), endpoint):
            yield delta
        assembler.done = True
    elif start.lstrip()[:1] == b"<":
        page = read_error(start.decode(errors="replace") + await answer.text(MAX_BODY_BYTES))
        raise bad_reply(endpoint, page.message, "check the URL; most end in /v1")
    else:
        async for delta in _read_events(start, answer, assembler, endpoint):
            yield delta
    for delta in assembler.close():
        yield delta
    if not assembler.is_truncated:
        _check_whole(assembler, endpoint)
    elif not assembler.finish_at_limit():
        raise bad_reply(endpoint, "more than a reply may have", "try again; `model.longest_reply` allows more")


async def _read_start(answer: OpenResponse) -> bytes:
    """Return the body up to the first bytes that show its type. Content-Type headers are often wrong."""
    start = b""
    while not start.strip() and (chunk := await answer.next_chunk()) is not None:
        start = start[-MAX_START_BYTES:] + chunk
    return start


async def _read_events(
    start: bytes, answer: OpenResponse, assembler: Assembler, endpoint: Endpoint
) -> AsyncGenerator[Delta, None]:
    decoder = EventDecoder()
    chunk: bytes | None = start
    while chunk is not None:
        size_before = assembler.size
        for event in decoder.feed(chunk):
            for delta in _feed(assembler, event, endpoint):
                yield delta
        if assembler.is_truncated:
            return
        if assembler.size > size_before:
            answer.mark_progress()
        if decoder.waiting > MAX_EVENT_BYTES:
            raise bad_reply(endpoint, ENDLESS_EVENT, "try again")
        chunk = await _next_chunk(answer, assembler)
    for event in decoder.close():
        for delta in _feed_last(assembler, event, endpoint):
            yield delta


async def _next_chunk(answer: OpenResponse, assembler: Assembler) -> bytes | None:
    """Return the next chunk. Once the model has finished, neither a timeout nor a lost connection discards the
    reply."""
    if not assembler.done and not assembler.finish_reason:
        return await answer.next_chunk()
    try:
        return await answer.next_chunk(BODY_END_WAIT_SECONDS if assembler.done else USAGE_WAIT_SECONDS)
    except ModelFault:
        return None


def _feed(assembler: Assembler, event: ServerEvent, endpoint: Endpoint) -> list[Delta]:
    if assembler.done:
        return []
    try:
        return assembler.feed(event.data, event.name)
    except MalformedChunk as error:
        raise bad_reply(endpoint, str(error), "try again") from error
    except StreamedError as error:
        raise from_stream(endpoint, read_error_value(error.body)) from error


def _feed_last(assembler: Assembler, event: ServerEvent, endpoint: Endpoint) -> list[Delta]:
    """Feed a final event without its empty line. If it is incomplete, the rest of the reply was lost."""
    try:
        return _feed(assembler, event, endpoint)
    except ModelFault as fault:
        if fault.kind != "bad_reply":
            raise
        if assembler.finish_reason:
            return []
        raise _cut_off(endpoint) from fault


def _cut_off(endpoint: Endpoint) -> ModelFault:
    return ModelFault("interrupted", f"{endpoint.netloc} closed the connection before the reply ended")


def _check_whole(assembler: Assembler, endpoint: Endpoint) -> None:
    if not assembler.has_choice:
        raise bad_reply(endpoint, "an answer without a reply in it")
    if not assembler.done and not assembler.finish_reason:
        raise _cut_off(endpoint)


REFUSAL_STATUSES = frozenset({400, 422})
"""The statuses with which an endpoint may reject a request's fields."""


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
        with suppress(UnicodeEncodeError):  # a lone surrogate
            return msgspec.json.encode(body)  # in a tenth of the time of `json`
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
