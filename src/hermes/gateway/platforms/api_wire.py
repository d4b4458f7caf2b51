"""The wire format of the OpenAI-compatible API: requests, completions, chunks and errors. Values only, no sockets.

A turn's events as an HTTP response: one JSON document, or a stream of server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hermes.events import Accepted, Failed, FailureKind, Notice, Replied, Stopped, TextDelta, ToolStarted, Waiting
from hermes.types import Draft, Json, ToolCall

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
UNSUPPORTED = ("tools", "functions", "tool_choice", "function_call", "audio", "modalities")
"""Parameters that would change the meaning of a request if they were ignored."""
MAX_NOTICE_CHARS, MAX_NOTICES = 1000, 20
MAX_CLIENT_NAME_CHARS = 512
"""Longest name that a client may choose for a user, model, session or key."""


MAX_REQUEST_MESSAGES = 20_000
"""Maximum number of messages in a request."""


class ApiError(Exception):
    """An error response in OpenAI's format."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.body: Json = {"error": {"message": message, "type": kind, "param": param, "code": code}}


NO_RETRY_HEADERS = {"x-should-retry": "false"}
"""Tells clients not to repeat the request by themselves: the message is stored."""


def failure(kind: FailureKind, message: str) -> ApiError:
    """Return a failed turn as an error response."""
    if kind == "context_too_long":
        return ApiError(400, message, code="context_length_exceeded", headers=NO_RETRY_HEADERS)
    if kind in ("ending", "busy", "store"):
        return ApiError(503, message, kind="server_error", code=kind, headers={**NO_RETRY_HEADERS, "Retry-After": "5"})
    if kind == "gone":
        return ApiError(410, message, code="session_deleted", headers=NO_RETRY_HEADERS)
    if kind == "model":
        return ApiError(502, message, kind="server_error", code="model_failed", headers=NO_RETRY_HEADERS)
    return ApiError(500, message, kind="server_error", code="host_failed", headers=NO_RETRY_HEADERS)


class CompletionRequest(Struct, frozen=True):
    """A parsed request for a completion."""

    messages: tuple[Draft, ...]
    model: str
    stream: bool = False
    include_usage: bool = False
    user: str | None = None

    @property
    def last_said(self) -> str:
        """The last user message: the new one in a session that we store."""
        for message in reversed(self.messages):
            if message.role == "user" and (message.content or "").strip():
                return message.content or ""
        raise ApiError(400, "the request has no user message with text", param="messages")


def parse_ask(body: bytes) -> CompletionRequest:
    """Parse a request. Raises ApiError for invalid input."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    for name in UNSUPPORTED:
        if value.get(name) not in (None, [], {}, "none", "auto", ["text"]):
            raise ApiError(400, f"'{name}' is not supported: the agent has its own tools", param=name)
    if value.get("n") not in (None, 1):
        raise ApiError(400, "'n' must be 1: only one choice is supported", param="n")
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "'messages' must be a list with at least one message", param="messages")
    if len(messages) > MAX_REQUEST_MESSAGES:
        raise ApiError(
            400,
            f"'messages' has {len(messages):,} items; at most {MAX_REQUEST_MESSAGES:,} are allowed",
            param="messages",
        )
    options = _typed(value, "stream_options", dict) or {}
    return CompletionRequest(
        messages=tuple(_message(message, f"messages[{place}]") for place, message in enumerate(messages)),
        model=_name(value, "model") or "hermes",
        stream=_typed(value, "stream", bool) or False,
        include_usage=_typed(options, "include_usage", bool) or False,
        user=None if value.get("user") is None else _name(value, "user"),
    )


def _typed(value: Mapping[str, Json], name: str, kind: type) -> Json:
    found = value.get(name)
    if found is not None and not isinstance(found, kind):
        raise ApiError(400, f"'{name}' must be a {kind.__name__}, not a {type(found).__name__}", param=name)
    return _clean(found, name) if isinstance(found, str) else found


def _name(value: Mapping[str, Json], name: str) -> str:
    """Return a name that a client chose. It is stored or sent back, so it must be short and on one line."""
    found: str = _typed(value, name, str) or ""
    if len(found) > MAX_CLIENT_NAME_CHARS or not found.isprintable():
        raise ApiError(400, f"'{name}' must have at most {MAX_CLIENT_NAME_CHARS} printable characters", param=name)
    return found


def _message(value: Json, where: str) -> Draft:
    if not isinstance(value, dict):
        raise ApiError(400, f"{where} must be an object", param=where)
    role = ROLES.get(str(value.get("role")))
    if role is None:
        raise ApiError(400, f"{where}.role is {value.get('role')!r}; use one of {', '.join(ROLES)}", param=where)
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ApiError(400, f"{where}.tool_calls must be a list of objects", param=where)
    call_id = _typed(value, "tool_call_id", str)
    content = _content(value.get("content"), f"{where}.content")
    return Draft(role, content, tuple(ToolCall.from_wire(call) for call in calls), tool_call_id=call_id)


def _content(value: Json, where: str) -> str:
    """Text as it is, or the text parts of a list, joined."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _clean(value, where)
    if not isinstance(value, list):
        raise ApiError(400, f"{where} must be text or a list of parts", param=where)
    texts: list[str] = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            shown = repr(kind) if kind else "no part"
            raise ApiError(400, f"{where} holds {shown}; only text can be read", param=where)
        texts.append(_clean(part["text"], where))
    return "\n".join(texts)


def _clean(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(400, f"{where} is not valid Unicode: it holds half a surrogate pair", param=where) from None
    if "\0" in text:
        raise ApiError(400, f"{where} holds a NUL character (U+0000), which is not allowed", param=where)
    return text


def token_counts(prompt: int | None, completion: int | None) -> Json:
    """Return the token counts that the model reported."""
    total = (prompt or 0) + (completion or 0)
    return {"prompt_tokens": prompt or 0, "completion_tokens": completion or 0, "total_tokens": total}


class Completion(Struct, frozen=True):
    """A completion on the wire, whole or in chunks."""

    id: str
    model: str
    created: int
    include_usage: bool = False

    def whole(self, text: str, usage: Json, finish_reason: str, notices: Sequence[str]) -> Json:
        """Return the whole completion with its notices."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage, **_notices_field(notices)}

    def chunk(self, delta: Json, finish_reason: str | None = None, notices: Sequence[str] = ()) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        usage = {"usage": None} if self.include_usage else {}
        return event({**self._head("chat.completion.chunk"), "choices": [choice], **usage, **_notices_field(notices)})

    def usage_chunk(self, usage: Json) -> bytes:
        """Return the chunk with the token counts, for clients that requested it."""
        return event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})

    def _head(self, kind: str) -> dict[str, Json]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def _notices_field(notices: Sequence[str]) -> dict[str, Json]:
    """Return the `hermes` field, which other clients ignore."""
    return {"hermes": {"notices": [text[:MAX_NOTICE_CHARS] for text in notices[-MAX_NOTICES:]]}} if notices else {}


DONE = b"data: [DONE]\n\n"
ALIVE = b": alive\n\n"


def event(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


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
