"""The OpenAI-compatible HTTP API.

POST /v1/chat/completions ─┬─ names a session: inbox ── lane ── turn, events streamed
                           ├─ names none, `full`: its session is recognised by the messages, then the same
                           └─ names none: a temporary agent answers the request's own messages; nothing is stored
GET  /v1/models, /health
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal
from urllib.parse import quote

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes.agent.loop import converse
from hermes.agent.transcript import ScratchTranscript
from hermes.agent.turn import Reading, read_memory
from hermes.clock import Clock
from hermes.errors import HermesError, SettingsError, StoreError, UsageError
from hermes.events import Notice, TurnEvent
from hermes.fence import strip_fences
from hermes.gateway.agent_cache import Person
from hermes.gateway.gateway import Gateway
from hermes.gateway.notices import may_hear
from hermes.gateway.platform import Chat, Inbound, Intake, SendNever
from hermes.gateway.platforms import api_wire
from hermes.gateway.platforms.api_conversations import (
    Conversations,
    find_memory_switch,
    is_task,
    name_conversation,
    read_history,
)
from hermes.gateway.platforms.api_door import Door, follow, limited_protocol, refuse_two_lengths
from hermes.gateway.platforms.api_options import MODES, ApiMemory, ApiOptions
from hermes.gateway.platforms.api_wire import (
    MAX_CLIENT_NAME_CHARS,
    ApiError,
    Completion,
    CompletionRequest,
    Events,
    EventStream,
    answer_whole,
    header_text,
    parse_ask,
)
from hermes.http_server import GuestServer, listen
from hermes.loopback import find_strangeness, is_loopback
from hermes.scope import OWNER, Guest, Scope
from hermes.store.api_turns import mark_delivered
from hermes.types import Session

log = logging.getLogger("hermes.gateway")

NAME = "api"
MAX_REQUEST_BYTES = 10 * 1024 * 1024
KEY_REUSED = "this Idempotency-Key belongs to another message of this conversation; use a new key for a new message"
NOT_YOURS = "this session belongs to another user"
SESSION_KEEPS = "a session has its own memory mode; send `/memory off` in it to switch memory off"
EMPTY_USER = "'user' must not be empty: it names the guest; a request without 'user' is the owner's"
SESSION_ID, SESSION_KEY, IDEMPOTENCY = "x-hermes-session-id", "x-hermes-session-key", "idempotency-key"


class HttpApi:
    """The HTTP API as a platform. It sends nothing by itself: each open request receives the events of its turn."""

    name = NAME
    longest_message = 1_000_000
    can_edit = False

    def __init__(self, gateway: Gateway, clock: Clock, options: ApiOptions) -> None:
        if not options.key and not is_loopback(options.host):
            raise SettingsError(
                f"api.host is {options.host!r}, which others can reach, but api.key is empty",
                hint="Set `api.key` (or API_SERVER_KEY), or set `api.host` to 127.0.0.1",
            )
        self._gateway = gateway
        self._clock = clock
        self._options = options
        self._door = Door(options.key, clock)

    async def run(self, intake: Intake) -> None:
        """Serve until cancelled; then refuse connections and finish running requests."""
        options = self._options
        server = GuestServer(
            refuse_two_lengths(self.app()),
            http=limited_protocol(options.timeout_seconds, options.connections),
            drain=int(options.drain) + 5,
            keep_alive=30,
        )
        with listen(options.host, options.port, "end what uses it, or set `api.port` and `api.host`") as listener:
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            await intake.report(NAME, "ok", f"http://{shown}:{port}/v1")
            await server.serve_on(listener)

    async def send(self, chat: Chat, text: str, key: str = "") -> str:  # noqa: ARG002 - nothing is sent
        raise SendNever(f"nobody waits for it over HTTP: {len(text)} characters for {chat.chat_id}")

    async def was_sent(self, chat: Chat, key: str, since: float) -> bool:  # noqa: ARG002 - nothing is sent
        return False

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        raise SendNever(f"what was sent over HTTP cannot be changed: {chat.chat_id} {message_id} {len(text)}")

    async def show_typing(self, chat: Chat) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing: the server ended with `run`."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/models/{name}", self._model, methods=["GET"]),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys(
                (ApiError, HTTPException, HermesError, ClientDisconnect, Exception), _show_error
            ),
        )

    async def _health(self, _: Request) -> Response:
        if self._gateway.ending:
            return JSONResponse({"status": "ending"}, status_code=503)
        if self._gateway.trouble is not None:
            return JSONResponse({"status": "failing", "reason": self._gateway.trouble.message}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def _models(self, request: Request) -> Response:
        await self._check(request)
        return JSONResponse({"object": "list", "data": [self._describe(name) for name in self._names]})

    async def _model(self, request: Request) -> Response:
        await self._check(request)
        if request.path_params["name"] not in self._names:
            raise _no_model(request.path_params["name"])
        return JSONResponse(self._describe(request.path_params["name"]))

    @property
    def _names(self) -> dict[str, ApiMemory]:
        """The models that a client can choose, each with its memory mode."""
        own = self._options.model_name
        return {own: self._options.memory, **{f"{own}:{mode}": mode for mode in MODES}}

    def _describe(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": 0, "owned_by": "hermes"}

    async def _complete(self, request: Request) -> Response:
        await self._check(request)
        ask = self._with_user(parse_ask(await read_body(request, self._options.timeout_seconds)))
        session_id, given_key = _named(request, SESSION_ID), _named(request, SESSION_KEY)
        guest = ask.user if self._options.user_guests else None
        session_key = given_key
        if given_key is not None and guest is not None:  # it means nothing to others, and no chat of a platform
            session_key = f"{NAME}:{quote(guest, safe='')}:{given_key}"
        message = Inbound(
            chat=Chat(NAME, "api", session_id or session_key or ""),
            message_id=_named(request, IDEMPOTENCY) or "",
            text="",
            author_id=ask.user,
            session_key=session_key,
            session_id=session_id,
        )
        mode = self._mode_of(ask, is_named=session_id is not None or session_key is not None)
        if mode == "named":
            message_id = message.message_id or secrets.token_hex(16)
            return await self._say(request, ask, replace(message, message_id=message_id, text=ask.last_said), given_key)
        if mode == "full" and (placed := await self._place(ask, message)) is not None:
            response = await self._say(request, ask, placed, None)
            response.background = BackgroundTask(self._mark_delivered, placed)
            return response
        reads = mode != "off" and find_memory_switch(ask.messages) != "off"
        return await self._respond(request, ask, self._converse(ask, reads=reads), {})

    def _mode_of(self, ask: CompletionRequest, *, is_named: bool) -> ApiMemory | Literal["named"]:
        """Return the memory mode of a request: from its session, else from its model name, else from the settings.

        A program's own task has no memory. A last message that no person wrote is answered and not stored.
        """
        chosen = self._names.get(ask.model)
        if chosen is None and ask.model.startswith(f"{self._options.model_name}:"):
            raise _no_model(ask.model)
        if is_named:
            if ask.model != self._options.model_name and chosen in ("off", "recall"):
                raise ApiError(400, SESSION_KEEPS, param="model")
            return "named"
        mode = chosen or self._options.memory
        last = ask.messages[-1]
        if is_task(last.content or ""):
            return "off"
        is_said = last.role == "user" and (last.content or "").strip()
        return "recall" if mode == "full" and not is_said else mode

    async def _place(self, ask: CompletionRequest, message: Inbound) -> Inbound | None:
        history = await asyncio.to_thread(read_history, self._scope_of(ask), ask.user, ask.messages)
        return await Conversations(self._options.store).place(history, message)

    async def _say(self, request: Request, ask: CompletionRequest, message: Inbound, given_key: str | None) -> Response:
        """Hand in a message and respond with the events of its turn."""
        received, events = await follow(self._gateway, message)
        if received.verdict.kind != "welcome":
            await events.aclose()
            raise ApiError(403, NOT_YOURS, param=SESSION_ID, code="not_your_session")
        if received.other:
            await events.aclose()
            raise ApiError(422, KEY_REUSED, param=IDEMPOTENCY, code="idempotency_key_reused")
        headers = {
            api_wire.SESSION_ID: header_text(received.session_id or ""),
            api_wire.SESSION_KEY: header_text(given_key or received.key),
            **({} if received.fresh else {"Idempotent-Replayed": "true"}),
        }
        return await self._respond(request, ask, events, headers)

    def _with_user(self, ask: CompletionRequest) -> CompletionRequest:
        """Return the request without an empty `user`. Raises ApiError where users are guests: an empty name does not
        mean the owner."""
        if ask.user is None or ask.user.strip():
            return ask
        if self._options.user_guests:
            raise ApiError(400, EMPTY_USER, param="user")
        return replace(ask, user=None)

    async def _respond(
        self, request: Request, ask: CompletionRequest, events: Events, headers: dict[str, str]
    ) -> Response:
        completion_id = f"chatcmpl-{secrets.token_hex(12)}"
        completion = Completion(completion_id, ask.model, int(self._clock.now()), ask.include_usage)
        if ask.stream:
            return EventStream(completion, events, headers)
        return await answer_whole(request, completion, events, headers)

    async def _mark_delivered(self, placed: Inbound) -> None:
        """Record that a client received its whole reply: the same request again asks for another one."""
        session_id, item = placed.session_id or "", placed.message_id
        try:
            await self._options.store.write(lambda tx: mark_delivered(tx, session_id, item))
        except StoreError as error:
            log.warning("could not record that a reply was delivered: %s", error.line())

    async def _converse(self, ask: CompletionRequest, *, reads: bool) -> AsyncGenerator[TurnEvent, None]:
        """Answer the messages of a request. Nothing is stored; if the request `reads` memory, the provider is queried
        but stores nothing."""
        options, scope = self._options, self._scope_of(ask)
        messages = [replace(one, content=strip_fences(one.content or "")) for one in ask.messages]
        reading = Reading(options.prompt(scope))
        if reads:
            name = f"{NAME}-{name_conversation(scope, ask.user, messages)[:32]}"
            session = Session(name, NAME, self._clock.now(), ask.user, f"{NAME}:{name}", chat_type="api")
            async with self._gateway.reading_agent(session, scope, Person(ask.user)) as agent:
                reading = await read_memory(agent, messages)
        transcript = ScratchTranscript(reading.prompt, messages, self._clock.now(), reading.recalled)
        async with aclosing(converse(options.speaker(scope, reads), transcript, "", asyncio.Event())) as events:
            for notice in reading.notices:
                yield Notice(notice, is_outage=True)
            async for event in events:
                if may_hear(event, scope):
                    yield event

    def _scope_of(self, ask: CompletionRequest) -> Scope:
        return Guest(NAME, ask.user) if self._options.user_guests and ask.user else OWNER

    async def _check(self, request: Request) -> None:
        """Raise ApiError unless the request has the key. Without a key, only this machine may ask, and no web page open
        on it."""
        if self._gateway.ending:
            raise ApiError(503, "the gateway is shutting down", kind="server_error", headers={"Retry-After": "5"})
        if self._options.key:
            await self._door.check(request.headers.get("authorization"))
            return
        if (strange := find_strangeness(request.headers)) is not None:
            raise ApiError(403, f"without a key, {strange}; set `api.key`")


async def read_body(request: Request, timeout_seconds: float) -> bytes:
    """Return the whole body. Raises ApiError if it is too large or too slow."""
    if int(request.headers.get("content-length") or 0) > MAX_REQUEST_BYTES:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_REQUEST_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise ApiError(408, "the body was not received in time", headers={"Connection": "close"}) from None
    return bytes(body)


def _no_model(name: str) -> ApiError:
    return ApiError(404, f"there is no model '{name}'", param="model", code="model_not_found")


def _too_large() -> ApiError:
    return ApiError(413, f"the body has more than {MAX_REQUEST_BYTES:,} bytes", headers={"Connection": "close"})


def _named(request: Request, header: str) -> str | None:
    values = request.headers.getlist(header)
    if not values:
        return None
    if len(values) > 1:
        raise ApiError(400, f"the request has {len(values)} {header} headers; send one", param=header)
    value = values[0]
    if not 0 < len(value) <= MAX_CLIENT_NAME_CHARS or not value.isprintable():
        raise ApiError(400, f"{header} must have 1 to {MAX_CLIENT_NAME_CHARS} printable characters", param=header)
    return value


async def _show_error(request: Request, error: Exception) -> Response:
    match error:
        case ApiError():
            response = error
        case ClientDisconnect():
            return Response(status_code=499)
        case HTTPException(detail=detail):  # unknown paths and wrong methods
            what = f"{request.method} {request.url.path}: {detail}"
            response = ApiError(error.status_code, what, headers=error.headers)
        case UsageError():
            response = ApiError(400, error.line())
        case HermesError():
            if not isinstance(error, StoreError):  # the gateway logs store errors, once
                log.error("a request failed: %s", error.line())
            response = ApiError(503, error.line(), kind="server_error", headers={"Retry-After": "5"})
        case _:
            log.exception("a request failed with an unexpected error", exc_info=error)
            response = ApiError(500, f"internal error: {type(error).__name__}", kind="server_error")
    return JSONResponse(response.body, status_code=response.status, headers=response.headers)
