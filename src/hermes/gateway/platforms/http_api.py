"""The OpenAI-compatible HTTP API.

POST /v1/chat/completions ─┬─ names a session: inbox ── lane ── turn, heard as it goes on
                           └─ names none: a temporary agent answers the request's own messages; nothing is stored
GET  /v1/models, /health
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes.agent.loop import converse
from hermes.agent.transcript import ScratchTranscript
from hermes.clock import Clock
from hermes.errors import HermesError, SettingsError, StoreError, UsageError
from hermes.events import TurnEvent
from hermes.gateway.gateway import Gateway
from hermes.gateway.platform import Chat, Inbound, Intake, SendNever
from hermes.gateway.platforms import api_reply
from hermes.gateway.platforms.api_door import Door, patient_protocol, refuse_two_lengths
from hermes.gateway.platforms.api_follow import follow
from hermes.gateway.platforms.api_reply import Events, EventStream, answer_whole, header_text
from hermes.gateway.platforms.api_terms import ApiTerms
from hermes.gateway.platforms.api_wire import LONGEST_NAME, ApiError, Completion, CompletionRequest, parse_ask
from hermes.gateway.remarks import may_hear
from hermes.http_server import GuestServer, listen
from hermes.loopback import find_strangeness, is_loopback
from hermes.scope import OWNER, Guest

log = logging.getLogger("hermes.gateway")

NAME = "api"
LARGEST_BODY = 10 * 1024 * 1024
REUSED = "this Idempotency-Key was another message's in this conversation; a new message takes a new key"
NOT_YOURS = "this session is not one of the user's"
NOBODY = "'user' is empty: it names the guest who speaks, and a request without it is the owner's"
SESSION_ID, SESSION_KEY, IDEMPOTENCY = "x-hermes-session-id", "x-hermes-session-key", "idempotency-key"


class HttpApi:
    """The API as a platform. Nothing is pushed to it: whoever asked hears the events of the turn."""

    name = NAME
    longest_message = 1_000_000
    can_edit = False

    def __init__(self, gateway: Gateway, clock: Clock, terms: ApiTerms) -> None:
        if not terms.key and not is_loopback(terms.host):
            raise SettingsError(
                f"api.host is {terms.host!r}, which others can reach, but api.key is empty",
                hint="Set `api.key` (or API_SERVER_KEY), or let `api.host` be 127.0.0.1",
            )
        self._gateway = gateway
        self._clock = clock
        self._terms = terms
        self._door = Door(terms.key, clock)

    async def run(self, intake: Intake) -> None:
        """Serve until cancelled; then take nothing more and let requests under way come to their end."""
        terms = self._terms
        server = GuestServer(
            refuse_two_lengths(self.app()),
            http=patient_protocol(terms.patience, terms.connections),
            drain=int(terms.drain) + 5,
            keep_alive=30,
        )
        with listen(terms.host, terms.port, "end what uses it, or set `api.port` and `api.host`") as listener:
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            await intake.report(NAME, "ok", f"http://{shown}:{port}/v1")
            await server.serve_on(listener)

    async def send(self, chat: Chat, text: str) -> str:
        raise SendNever(f"nobody waits for it over HTTP: {len(text)} characters for {chat.chat_id}")

    async def edit(self, chat: Chat, message_id: str, text: str) -> None:
        raise SendNever(f"what was sent over HTTP cannot be changed: {chat.chat_id} {message_id} {len(text)}")

    async def show_typing(self, chat: Chat) -> None:
        """There is nowhere to show it."""

    async def close(self) -> None:
        """The server has ended with `run`."""

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
        return JSONResponse({"object": "list", "data": [self._describe()]})

    async def _model(self, request: Request) -> Response:
        await self._check(request)
        if request.path_params["name"] != self._terms.model_name:
            raise ApiError(404, f"there is no model '{request.path_params['name']}'", code="model_not_found")
        return JSONResponse(self._describe())

    def _describe(self) -> dict[str, object]:
        return {"id": self._terms.model_name, "object": "model", "created": 0, "owned_by": "hermes"}

    async def _complete(self, request: Request) -> Response:
        await self._check(request)
        ask = self._with_user(parse_ask(await read_body(request, self._terms.patience)))
        session_id, given_key = _named(request, SESSION_ID), _named(request, SESSION_KEY)
        guest = ask.user if self._terms.user_guests else None
        session_key = given_key
        if given_key is not None and guest is not None:  # it means nothing to others, and no chat of a platform
            session_key = f"{NAME}:{quote(guest, safe='')}:{given_key}"
        if session_id is None and session_key is None:
            return await self._respond(request, ask, self._converse(ask), {})
        message = Inbound(
            chat=Chat(NAME, "api", session_id or session_key or ""),
            message_id=_named(request, IDEMPOTENCY) or secrets.token_hex(16),
            text=ask.last_said,
            author_id=ask.user,
            session_key=session_key,
            session_id=session_id,
        )
        received, events = await follow(self._gateway, message)
        if received.verdict.kind != "welcome":
            await events.aclose()
            raise ApiError(403, NOT_YOURS, param=SESSION_ID, code="not_your_session")
        if received.other:
            await events.aclose()
            raise ApiError(422, REUSED, param=IDEMPOTENCY, code="idempotency_key_reused")
        headers = {
            api_reply.SESSION_ID: header_text(received.session_id or ""),
            api_reply.SESSION_KEY: header_text(given_key or received.key),
            **({} if received.fresh else {"Idempotent-Replayed": "true"}),
        }
        return await self._respond(request, ask, events, headers)

    def _with_user(self, ask: CompletionRequest) -> CompletionRequest:
        """The request with nobody for an empty `user`. Where users are guests it is refused: who leaves somebody's name
        empty does not mean the owner."""
        if ask.user is None or ask.user.strip():
            return ask
        if self._terms.user_guests:
            raise ApiError(400, NOBODY, param="user")
        return replace(ask, user=None)

    async def _respond(
        self, request: Request, ask: CompletionRequest, events: Events, headers: dict[str, str]
    ) -> Response:
        completion_id = f"chatcmpl-{secrets.token_hex(12)}"
        completion = Completion(completion_id, ask.model, int(self._clock.now()), ask.include_usage)
        if ask.stream:
            return EventStream(completion, events, headers)
        return await answer_whole(request, completion, events, headers)

    async def _converse(self, ask: CompletionRequest) -> AsyncGenerator[TurnEvent, None]:
        """The request's own messages are the conversation. Nothing of it is kept, no memory provider hears of it."""
        scope = Guest(NAME, ask.user) if self._terms.user_guests and ask.user else OWNER
        transcript = ScratchTranscript(self._terms.prompt(scope), ask.messages, self._clock.now())
        async with aclosing(converse(self._terms.speaker(scope), transcript, "", asyncio.Event())) as events:
            async for event in events:
                if may_hear(event, scope):
                    yield event

    async def _check(self, request: Request) -> None:
        """Who may ask: whoever has the key. Without one, this machine, and no web page that is open on it."""
        if self._gateway.ending:
            raise ApiError(503, "the gateway is ending", kind="server_error", headers={"Retry-After": "5"})
        if self._terms.key:
            await self._door.check(request.headers.get("authorization"))
            return
        if (strange := find_strangeness(request.headers)) is not None:
            raise ApiError(403, f"without a key, {strange}; set `api.key`")


async def read_body(request: Request, patience: float) -> bytes:
    """The whole body, within its size and time."""
    if int(request.headers.get("content-length") or 0) > LARGEST_BODY:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST_BODY:
                    raise _too_large()
    except TimeoutError:
        raise ApiError(408, "the body did not come in time", headers={"Connection": "close"}) from None
    return bytes(body)


def _too_large() -> ApiError:
    return ApiError(413, f"the body has more than {LARGEST_BODY:,} bytes", headers={"Connection": "close"})


def _named(request: Request, header: str) -> str | None:
    values = request.headers.getlist(header)
    if not values:
        return None
    if len(values) > 1:
        raise ApiError(400, f"the request has {len(values)} {header} headers; send one", param=header)
    value = values[0]
    if not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise ApiError(400, f"{header} takes 1 to {LONGEST_NAME} printable characters", param=header)
    return value


async def _show_error(request: Request, error: Exception) -> Response:
    match error:
        case ApiError():
            told = error
        case ClientDisconnect():
            return Response(status_code=499)
        case HTTPException(detail=detail):  # unknown paths and wrong methods
            what = f"{request.method} {request.url.path}: {detail}"
            told = ApiError(error.status_code, what, headers=error.headers)
        case UsageError():
            told = ApiError(400, error.line())
        case HermesError():
            if not isinstance(error, StoreError):  # the gateway has said it, once
                log.error("a request failed: %s", error.line())
            told = ApiError(503, error.line(), kind="server_error", headers={"Retry-After": "5"})
        case _:
            log.exception("a request met a defect", exc_info=error)
            told = ApiError(500, f"a defect: {type(error).__name__}", kind="server_error")
    return JSONResponse(told.body, status_code=told.status, headers=told.headers)
