"""A shorter way to the routes that are asked most."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

JSON = "application/json"


class SwiftRoute(APIRoute):
    """A route with a JSON body, texts in its path, and dependencies that need the request alone.

    FastAPI spends as much on such a request as the search behind it. One that is as it should be goes straight to its
    function; whatever is wrong with another is told by FastAPI, as on every route.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        by_fastapi = super().get_route_handler()
        assert self.body_field is not None
        model = self.body_field.field_info.annotation
        assert model is not None
        call: Callable[..., Coroutine[Any, Any, Response]] = self.endpoint
        dependencies = [(str(needed.name), needed.call) for needed in self.dependant.dependencies]

        async def handle(request: Request) -> Response:
            if request.headers.get("content-type") != JSON:
                return await by_fastapi(request)
            content = await request.body()
            try:
                body = model.model_validate(orjson.loads(content))
            except ValueError:
                return await by_fastapi(request)
            given: dict[str, Any] = {**request.path_params, "body": body}
            for name, needed in dependencies:
                assert needed is not None
                given[name] = await needed(request)
            return await call(**given)

        return handle
