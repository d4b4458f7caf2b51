"""Serves the page until stopped: connects store, memory and turns, and guards every request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.agent.agent import Agent
from hermes.agent.leftovers import LEFTOVERS_INTERVAL_SECONDS, process_leftovers
from hermes.app import App
from hermes.errors import HermesError
from hermes.gateway.agent_cache import NOBODY
from hermes.http_server import GuestServer, listen
from hermes.owner.models import MemoryModelDesk
from hermes.owner.web_key import is_web_key
from hermes.scope import OWNER
from hermes.store.store import Store
from hermes.types import Session
from hermes.web import (
    api,
    asking,
    chat,
    connecting,
    first,
    health,
    model_pages,
    people_pages,
    session_timeline,
    settings_pages,
    upkeep,
)
from hermes.web import memory as memory_routes
from hermes.web.door import ENTER, LINK_USED, STATIC, WebDoor
from hermes.web.drawing import HEADERS, HERE, page
from hermes.web.keeper import HostKeeper
from hermes.web.routing import redirect, refuse_request, show_error

log = logging.getLogger("hermes.web")
DRAIN_SECONDS = 5
TEND_SECONDS = 60.0
Announce = Callable[[str], None]
"""Called with each one-time link."""


class Guarded:
    """Middleware that checks access before any route and adds our headers to every response."""

    def __init__(self, app: ASGIApp, door: WebDoor) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._door.refuse(scope["method"], scope["path"], Headers(scope=scope))
        if refused is not None:
            scope["app"] = self._app
            request = Request(scope)
            answer = refuse_request(request, "refused.html", refused.status, refused.why)
            await answer(scope, receive, _with_headers(scope["path"], send))
            return
        await self._app(scope, receive, _with_headers(scope["path"], send))


def _with_headers(path: str, send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Cache-Control"] = "no-cache" if path.startswith(STATIC) else "no-store"
        await send(message)

    return send_with_headers


def make_app(keeper: HostKeeper, announce: Announce) -> ASGIApp:
    """Return the page as an ASGI application. `announce` gets a new link whenever the previous one was used."""
    door, connects = keeper.host.door, connecting.Connects()

    async def enter(request: Request) -> Response:
        if not door.take_link(request.query_params.get("once", "")):
            return page(request, "refused.html", 401, problem=LINK_USED)
        announce(door.new_link())
        is_from_elsewhere = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
        answer = page(request, "entered.html") if is_from_elsewhere else redirect("/")
        answer.headers["Set-Cookie"] = door.header()
        return answer

    app = Starlette(
        routes=[
            Route(ENTER, enter),
            Mount("/static", StaticFiles(directory=HERE / "static")),
            *first.routes(),
            *asking.question_routes(),
            *upkeep.routes(),
            *memory_routes.routes(),
            *session_timeline.routes(),
            *health.routes(),
            *api.routes(),
            *chat.routes(),
            *settings_pages.routes(),
            *people_pages.routes(),
            *model_pages.routes(),
            *connecting.endpoints(lambda: keeper.host, connects),
        ],
        exception_handlers=dict.fromkeys((HermesError, HTTPException, ClientDisconnect, Exception), show_error),
    )
    app.state.keeper, app.state.door, app.state.connects = keeper, door, connects
    return Guarded(app, door)


async def serve(
    app: App, store: Store, memory_model: MemoryModelDesk, port: int, announce: Announce, stopping: asyncio.Event
) -> None:
    """Serve on loopback until `stopping` is set. Raises UsageError if the port is in use."""
    with listen("127.0.0.1", port, "choose another --port") as listener:
        door = WebDoor(listener.getsockname()[1], lambda given: is_web_key(app.home, given))
        keeper = HostKeeper(app, store, door, memory_model)
        server = GuestServer(make_app(keeper, announce), drain=DRAIN_SECONDS)
        announce(door.new_link())
        serving = asyncio.create_task(server.serve_on(listener))
        waiting = asyncio.create_task(stopping.wait())
        tending = asyncio.create_task(_maintain(keeper))
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            tending.cancel()
            await keeper.host.turns.close()
            server.end()
            await asyncio.wait({serving})
            await keeper.close()


async def _maintain(keeper: HostKeeper) -> None:
    """Evict idle agents, reload changed settings, and review and title sessions that an earlier start left behind."""
    started = keeper.host.now
    looked_at = -LEFTOVERS_INTERVAL_SECONDS

    def use(session: Session) -> AbstractAsyncContextManager[Agent]:
        return keeper.host.agents.use(session, session.id, OWNER, NOBODY)

    while True:
        if (now := asyncio.get_running_loop().time()) >= looked_at + LEFTOVERS_INTERVAL_SECONDS:
            looked_at = now
            await process_leftovers(keeper.host.store, lambda session: session.source == chat.WEB, use, started)
        await asyncio.sleep(TEND_SECONDS)
        keeper.host.agents.evict()
        try:
            await keeper.refresh()
        except HermesError as error:
            log.warning("web: the changed settings cannot be used: %s", error.line())
