"""A shorter way to the routes that are asked most."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

import msgspec
from fastapi import HTTPException, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.memory_server.api.faults import find_handler

JSON = b"application/json"
Dependency = Callable[[Request], Awaitable[Any]]


class ShortWay:
    """An ASGI layer that answers without FastAPI where it can: a route takes texts of its path, a JSON body or none,
    headers that may be missing, and what is made of the request alone. Each returns a `Response`.

    FastAPI spends more on such a request than most reads take. One that is as it should be goes straight to its
    function; whatever is wrong with another is told by FastAPI, as on every route.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._ways: dict[tuple[str, int], list[_Way]] = {}
        """By method and number of slashes, in the order of the routes: the first that fits answers."""
        for route in routes:
            if isinstance(route, APIRoute):
                for method in route.methods or ():
                    self._ways.setdefault((method, route.path.count("/")), []).append(_way(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._find(scope) if scope["type"] == "http" else None
        if way is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        content = b""
        response: Response | None
        try:
            if way.body is not None:
                content = await _read(request)
            response = await way.answer(request, content)
        except Exception as error:
            if (handle := find_handler(error)) is None:
                raise
            response = await handle(request, error)
        if response is None:
            await self._app(scope, _once_more(content, receive), send)
        else:
            await response(scope, receive, send)

    def _find(self, scope: Scope) -> _Way | None:
        """The way of a request, if it is short; what it leads to is noted in the scope, as FastAPI does."""
        parts = scope["path"].split("/")
        for way in self._ways.get((scope["method"], len(parts) - 1), ()):
            if way.fits(parts):
                if not way.is_short_for(scope["headers"]):
                    return None
                scope["route"] = way.route
                scope["path_params"] = {name: parts[place] for place, name in way.names}
                return way
        return None


@dataclass(frozen=True, slots=True)
class _Way:
    """The way to the function of a route."""

    route: APIRoute
    fixed: Sequence[tuple[int, str]]
    """The parts of its path that are always the same, and where they stand."""
    names: Sequence[tuple[int, str]]
    """What the other parts are called."""
    is_short: bool
    body: type[BaseModel] | None
    request: str | None
    """The parameter that takes the request itself."""
    headers: frozenset[bytes]
    """Those that FastAPI must look at, when they are given."""
    dependencies: Sequence[tuple[str, Dependency]]

    def fits(self, parts: Sequence[str]) -> bool:
        """Is a path of this route?"""
        return all(parts[place] == part for place, part in self.fixed) and all(parts[place] for place, _ in self.names)

    def is_short_for(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Can a request with these headers go this way?"""
        if not self.is_short or any(name in self.headers for name, _ in headers):
            return False
        return self.body is None or [value for name, value in headers if name == b"content-type"] == [JSON]

    async def answer(self, request: Request, content: bytes) -> Response | None:
        """What the function answers; None where the body is not as it should be."""
        given: dict[str, Any] = dict(request.path_params)
        if self.body is not None:
            try:
                # It keeps whole numbers of any size as they are, to be refused.
                given["body"] = self.body.model_validate(msgspec.json.decode(content))
            except (ValueError, msgspec.MsgspecError, RecursionError):
                return None
        if self.request is not None:
            given[self.request] = request
        for name, needed in self.dependencies:
            given[name] = await needed(request)
        answer: Response = await self.route.endpoint(**given)
        return answer


def _way(route: APIRoute) -> _Way:
    needs = route.dependant
    body = route.body_field.field_info.annotation if route.body_field else None
    parts = [(place, part) for place, part in enumerate(route.path.split("/"))]
    return _Way(
        route,
        fixed=[(place, part) for place, part in parts if not part.startswith("{")],
        names=[(place, part[1:-1]) for place, part in parts if part.startswith("{")],
        is_short=_is_short(route, body),
        body=body if isinstance(body, type) and issubclass(body, BaseModel) else None,
        request=needs.request_param_name,
        headers=frozenset(param.alias.lower().encode() for param in needs.header_params),
        dependencies=[(str(needed.name), needed.call) for needed in needs.dependencies if needed.call is not None],
    )


def _is_short(route: APIRoute, body: Any) -> bool:
    needs = route.dependant
    if not iscoroutinefunction(route.endpoint) or any((needs.query_params, needs.cookie_params, needs.body_params[1:])):
        return False
    if any(param.field_info.is_required() for param in needs.header_params):
        return False
    texts = all(param.field_info.annotation is str for param in needs.path_params)
    is_model = isinstance(body, type) and issubclass(body, BaseModel)
    return texts and (body is None or is_model) and all(_needs_request_alone(each) for each in needs.dependencies)


def _needs_request_alone(given: Dependant) -> bool:
    others = (given.path_params, given.query_params, given.header_params, given.cookie_params, given.body_params)
    return given.request_param_name == "request" and not given.dependencies and not any(others)


async def _read(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as gone:  # nobody reads this
        raise HTTPException(400, "The request has no end") from gone


def _once_more(content: bytes, receive: Receive) -> Receive:
    """A request whose body was read already."""
    first: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def told() -> Message:
        return first.pop() if first else await receive()

    return told
