"""The class of all routes: it checks keys before it reads bodies, and decodes large bodies in a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from inspect import iscoroutinefunction, signature
from json import JSONDecodeError
from typing import Any, get_args, get_type_hints

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from hermes.memory_server import limits
from hermes.memory_server.api.auth import Gate
from hermes.memory_server.api.bodies import Detail
from hermes.memory_server.api.server import Server
from hermes.memory_server.threads import compute

JSON = "application/json"
KEY_HEADER = "Idempotency-Key"
REQUEST = "hermes.request"
"""Key in the ASGI scope for the request that has already been checked."""
RouteHandler = Callable[[Request], Coroutine[Any, Any, Response]]
REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {
        "description": HTTPStatus(code).phrase,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{Detail.__name__}"}}},
    }
    for code in (400, 401, 403, 404, 408, 409, 413, 422, 429, 503)
}
"""Refusals of every route, by reference to one schema: passing a model for each status of each route would slow the
start by a tenth. `/health` defines the schema."""


def new_router(*tags: str) -> APIRouter:
    """Return a router whose routes share a tag and the documented refusals."""
    return APIRouter(tags=[*tags], responses=REFUSALS, route_class=GuardedRoute)


class GuardedRoute(APIRoute):
    """A route that authorizes before it reads the body.

    An endpoint whose parameters are path texts, a JSON body, the server, the caller and an idempotency key is called
    directly, since FastAPI's handling takes longer than most reads. FastAPI handles everything else."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        hints = get_type_hints(endpoint, include_extras=True)
        parts = (part for hint in hints.values() for part in get_args(hint))
        self._gate = next((part for part in parts if isinstance(part, Gate)), None)
        self._direct = _DirectCall.of(path, endpoint, hints)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = scope[REQUEST] = _JsonRequest(scope, receive)
        caller = None if self._gate is None else await self._gate(request)
        if self._direct is not None and await self._direct.suits(request):
            response: Response = await self.endpoint(**await self._direct.arguments(request, caller))
            await response(scope, receive, send)
        else:
            await super().handle(scope, receive, send)

    def get_route_handler(self) -> RouteHandler:
        """Let FastAPI handle the request object whose body may have been read."""
        through_fastapi = super().get_route_handler()

        async def go_on(given: Request) -> Response:
            return await through_fastapi(given.scope[REQUEST])

        return go_on


class _JsonRequest(Request):
    """A request that decodes its JSON at most once; large bodies in a thread."""

    _decoded: Any = None
    _is_large = False

    async def json(self) -> Any:
        if self._decoded is None:
            content = await self.body()
            self._is_large = len(content) > limits.LARGE_BODY_BYTES
            try:  # this decoder keeps integers of any size, so that they can be refused
                if self._is_large:
                    self._decoded = await compute(msgspec.json.decode, content)
                else:
                    self._decoded = msgspec.json.decode(content)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                if self._is_large:
                    raise JSONDecodeError(str(error), "", 0) from error
                self._decoded = await super().json()  # accepts other encodings, and reports the position of an error
        return self._decoded

    async def is_json(self) -> bool:
        """Read and decode the body. Return False if that fails; FastAPI then reports the error."""
        try:
            await self.json()
        except ClientDisconnect as error:  # nobody reads this
            raise HTTPException(400, "The request has no end") from error
        except (ValueError, RecursionError):
            return False
        return True

    async def read_model(self, kind: type[BaseModel]) -> BaseModel:
        try:
            if self._is_large:
                return await compute(kind.model_validate, self._decoded, from_attributes=True)
            return kind.model_validate(self._decoded, from_attributes=True)  # as FastAPI does
        except ValidationError as error:
            problems = error.errors(include_url=False)
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in problems]) from error


class _DirectCall(msgspec.Struct, frozen=True):
    """The parameter names of an endpoint, by what they receive."""

    texts: tuple[str, ...]
    servers: tuple[str, ...]
    callers: tuple[str, ...]
    body: type[BaseModel] | None
    takes_key: bool

    @classmethod
    def of(cls, path: str, endpoint: Callable[..., Any], hints: Mapping[str, Any]) -> _DirectCall | None:
        """Return None if only FastAPI can find the arguments."""
        kinds = {name: _kind(path, name, hints[name]) for name in signature(endpoint).parameters}
        if "other" in kinds.values() or not iscoroutinefunction(endpoint) or hints.get("return") is not Response:
            return None
        texts, servers, callers = (
            tuple(name for name, kind in kinds.items() if kind == wanted) for wanted in ("text", "server", "caller")
        )
        return cls(texts, servers, callers, hints.get("body"), "key" in kinds.values())

    async def suits(self, request: _JsonRequest) -> bool:
        """Return True if the endpoint can be called directly with this request. The body is decoded later."""
        if self.takes_key and KEY_HEADER in request.headers:
            return False
        if self.body is None:
            return True
        return request.headers.getlist("content-type") == [JSON] and await request.is_json()

    async def arguments(self, request: _JsonRequest, caller: Any) -> dict[str, Any]:
        given: dict[str, Any] = {name: request.path_params[name] for name in self.texts}
        given |= dict.fromkeys(self.servers, request.app.state.server) | dict.fromkeys(self.callers, caller)
        if self.body is not None:
            given["body"] = await request.read_model(self.body)
        return given


def _kind(path: str, name: str, hint: Any) -> str:
    parts = get_args(hint)
    if hint is str and f"{{{name}}}" in path:
        return "text"
    if any(isinstance(part, Gate) for part in parts):
        return "caller"
    if parts[:1] == (Server,):
        return "server"
    if name == "body" and isinstance(hint, type) and issubclass(hint, BaseModel):
        return "body"
    return "key" if name == "idempotency_key" else "other"
