"""HTTP routes for signing in to any memory provider; a web server mounts them.

`begin`, `status` and `disconnect` are for the owner: the server must let nobody else in, and `admit` decides which
requests may change something. `callback` is opened by a browser that another site redirects; the provider accepts its
`state` once, and needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hermes.errors import HermesError, NotFoundError, UsageError
from hermes.loopback import OWN_SITES
from hermes.memory.provider import Connect, ConnectSource

PATH = "/api/memory/providers/{name}/oauth"
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
DONE = "This answer was taken. You can close this page and go back."
FOREIGN = "Another web page sent this request. Nothing was changed"
SOURCES: tuple[ConnectSource, ...] = get_args(ConnectSource)
FindConnect = Callable[[str, str], Connect | None]
"""Returns the sign-in of a profile ("" for the default one) at a provider, or None."""
ConnectHandler = Callable[[Request, Connect], Response]
Admit = Callable[[Request], None]
"""Raises UsageError for requests that may not start or end a sign-in."""


def refuse_foreign(request: Request) -> None:
    """Refuse requests that another web page sent."""
    if request.headers.get("sec-fetch-site", "none") not in OWN_SITES:
        raise UsageError(FOREIGN)


def connect_routes(find: FindConnect, admit: Admit = refuse_foreign) -> list[Route]:
    """Return the routes for all providers and profiles; `?profile=` selects one other than the default."""

    def route(name: str, method: str, answer: ConnectHandler) -> Route:
        def respond(request: Request) -> Response:  # not async: starlette runs it in a thread, since providers block
            try:
                if method == "POST":
                    admit(request)
                return answer(request, _find(find, request))
            except HermesError as error:
                status = 404 if isinstance(error, NotFoundError) else 400
                return JSONResponse({"error": error.line()}, status, HEADERS)

        return Route(f"{PATH}/{name}", respond, methods=[method])

    return [
        route("begin", "POST", _begin),
        route("status", "GET", _status),
        route("callback", "GET", _callback),
        route("disconnect", "POST", _disconnect),
    ]


def _find(find: FindConnect, request: Request) -> Connect:
    name = request.path_params["name"][:100]
    if (connect := find(request.query_params.get("profile", ""), name)) is None:
        raise NotFoundError(f"nobody signs in to the memory provider {name!r}")
    return connect


def _begin(request: Request, connect: Connect) -> Response:
    given = request.query_params.get("source", "web")
    for source in SOURCES:
        if given == source:
            return JSONResponse({"url": connect.begin(source)}, headers=HEADERS)
    raise UsageError(f"source is one of {', '.join(SOURCES)}")


def _status(_request: Request, connect: Connect) -> Response:
    found = connect.status()
    return JSONResponse({"state": found.state, "detail": found.detail}, headers=HEADERS)


def _callback(request: Request, connect: Connect) -> Response:
    connect.callback({name: value for name, value in request.query_params.items() if name != "profile"})
    return PlainTextResponse(DONE, headers=HEADERS)


def _disconnect(request: Request, connect: Connect) -> Response:
    connect.disconnect()
    return _status(request, connect)
