"""A shorter way to the routes that are asked most."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import HTTPException, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

JSON = "application/json"


class SwiftRoute(APIRoute):
    """A route that is handled without FastAPI where it can be: it has a JSON body, texts in its path, and dependencies
    that need the request alone.

    FastAPI spends as much on such a request as the search behind it. One that is as it should be goes straight to its
    function; whatever is wrong with another is told by FastAPI, as on every route.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        by_fastapi = super().get_route_handler()
        model = self.body_field.field_info.annotation if self.body_field else None
        if not (isinstance(model, type) and issubclass(model, BaseModel) and _is_plain(self.dependant)):
            return by_fastapi
        call: Callable[..., Coroutine[Any, Any, Response]] = self.endpoint
        dependencies = [(str(needed.name), needed.call) for needed in self.dependant.dependencies]

        async def handle(request: Request) -> Response:
            if request.headers.get("content-type") != JSON:
                return await by_fastapi(request)
            try:
                content = await request.body()
            except ClientDisconnect as gone:  # nobody reads this
                raise HTTPException(400, "The request has no end") from gone
            try:
                # It keeps whole numbers of any size as they are, to be refused.
                body = model.model_validate(msgspec.json.decode(content))
            except (ValueError, msgspec.MsgspecError, RecursionError):
                return await by_fastapi(request)
            given: dict[str, Any] = {**request.path_params, "body": body}
            for name, needed in dependencies:
                assert needed is not None
                given[name] = await needed(request)
            return await call(**given)

        return handle


def _is_plain(given: Dependant) -> bool:
    """Whether a route takes nothing but texts of its path, its body, and what is made of the request."""
    others = (given.query_params, given.header_params, given.cookie_params, given.body_params[1:])
    texts = all(param.field_info.annotation is str for param in given.path_params)
    return not any(others) and texts and all(_needs_request_alone(needed) for needed in given.dependencies)


def _needs_request_alone(given: Dependant) -> bool:
    others = (given.path_params, given.query_params, given.header_params, given.cookie_params, given.body_params)
    return given.request_param_name == "request" and not given.dependencies and not any(others)
