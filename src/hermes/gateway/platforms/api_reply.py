"""A turn's events as an HTTP response: one JSON document, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hermes.events import Accepted, Failed, Notice, Replied, Stopped, TextDelta, ToolStarted, Waiting
from hermes.gateway.platforms.api_wire import ALIVE, DONE, Completion, event, failure, token_counts

T = TypeVar("T")
Events: TypeAlias = AsyncGenerator[Any, None]
"""The events of a turn. Unknown kinds are ignored."""

KEEPALIVE_SECONDS = 15.0
"""Seconds without data after which a stream sends a comment, so that no proxy closes it."""
SESSION_ID, SESSION_KEY = "X-Hermes-Session-Id", "X-Hermes-Session-Key"
INTERRUPTED = "the reply was cut off and starts again; repeat the request with the same Idempotency-Key"


async def answer_whole(
    request: Request, completion: Completion, events: Events, headers: Mapping[str, str]
) -> Response:
    """Return the whole reply. If the client disconnects, the turn continues."""
    notices: list[str] = []
    end = await _unless_disconnected(request.receive, _end_of(events, notices))
    headers = _with_session(headers, end)
    if isinstance(end, Failed):
        error = failure(end.kind, end.message)
        error.headers |= headers
        raise error
    counts = (end.prompt_tokens, end.completion_tokens) if isinstance(end, Replied) else (None, None)
    return JSONResponse(completion.whole(end.text, token_counts(*counts), _reason(end), notices), headers=dict(headers))


def _reason(end: Replied | Stopped) -> str:
    return "length" if isinstance(end, Replied) and end.cut else "stop"


def _with_session(headers: Mapping[str, str], found: object) -> Mapping[str, str]:
    """Return the headers with the session of the turn: `/new` may have begun another one while a message waited."""
    if (
        SESSION_ID in headers
        and isinstance(found, Waiting | Accepted | Replied | Stopped | Failed)
        and found.session_id
    ):
        return {**headers, SESSION_ID: header_text(found.session_id)}
    return headers


async def _end_of(events: Events, notices: list[str]) -> Replied | Stopped | Failed:
    """Return how the turn ended, and add its notices to `notices`."""
    async with aclosing(events):
        async for found in events:
            if isinstance(found, Notice):
                notices.append(found.text)
            if isinstance(found, Replied | Stopped | Failed):
                return found
    raise AssertionError("a turn has an end")


async def _unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; raise ClientDisconnect if the client leaves first."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.wait({working, gone})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A streamed reply."""

    def __init__(self, completion: Completion, events: Events, headers: Mapping[str, str]) -> None:
        super().__init__(media_type="text/event-stream")
        self._given_headers = headers
        self._completion = completion
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        try:
            await _unless_disconnected(receive, self._send_all(send))
        except ClientDisconnect:
            return  # the turn continues and is stored
        if self.background is not None:
            await self.background()

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events):
            coming = asyncio.ensure_future(anext(self._events, None))
            try:
                await asyncio.wait({coming}, timeout=KEEPALIVE_SECONDS)
                await self._send_head(send, coming.result() if coming.done() else None)
                await self._send_body(send, _from_first(coming, self._events))
            finally:
                coming.cancel()
                await asyncio.wait({coming})

    async def _send_head(self, send: Send, first: object) -> None:
        """Send the head with the session of the first event. Without an event it is sent after a timeout, before the
        client gives up."""
        self.init_headers({**_with_session(self._given_headers, first), "Cache-Control": "no-store"})
        del self.headers["content-length"]
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _send_body(self, send: Send, events: Events) -> None:
        async with aclosing(events), aclosing(kept_alive(write_stream(self._completion, events))) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _from_first(first: asyncio.Future[Any], events: Events) -> Events:
    if (found := await first) is not None:
        yield found
        async for found in events:
            yield found


def header_text(value: str) -> str:
    """Return a text as a header can carry it."""
    return value.encode("latin-1", "backslashreplace").decode("latin-1")


async def write_stream(completion: Completion, events: Events) -> AsyncGenerator[bytes, None]:
    """Yield the events of a turn as chunks: role, text, finish reason, usage if requested, and the end mark."""
    yield completion.chunk({"role": "assistant", "content": ""})
    said = ""
    notices: list[str] = []
    async for found in events:
        match found:
            case Notice(text):
                notices.append(text)
            case TextDelta(text):
                said += text
                yield completion.chunk({"content": text})
            case ToolStarted() if said:  # what was said before a tool ran is a paragraph of its own
                said = ""
                yield completion.chunk({"content": "\n\n"})
            case Accepted() if said:
                yield event(failure("busy", INTERRUPTED).body)
                return
            case Replied(text=text):
                if rest := text.removeprefix(said) if text.startswith(said) else "":
                    yield completion.chunk({"content": rest})
                yield completion.chunk({}, _reason(found), notices)
                if completion.include_usage:
                    yield completion.usage_chunk(token_counts(found.prompt_tokens, found.completion_tokens))
                yield DONE
            case Stopped(text=text):
                if not said and text:
                    yield completion.chunk({"content": text})
                yield completion.chunk({}, "stop")
                yield DONE
            case Failed(kind=kind, message=message):
                yield event(failure(kind, message).body)


async def kept_alive(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield `pieces`, and a comment whenever none came for KEEPALIVE_SECONDS."""
    coming: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(pieces, None))
            done, _ = await asyncio.wait({coming}, timeout=KEEPALIVE_SECONDS)
            if not done:
                yield ALIVE
                continue
            piece, coming = coming.result(), None
            if piece is None:
                return
            yield piece
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})
        await pieces.aclose()
