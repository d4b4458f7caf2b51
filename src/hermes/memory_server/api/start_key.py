"""The key of one start: who could read it where the server put it may do everything, anyone else nothing."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from hermes.loopback import shows_key
from hermes.memory_server.api.traffic import HEALTH, KEY_SHOWN, UNAUTHORIZED
from hermes.memory_server.api.wire import JsonResponse

REFUSED = {"detail": "This server's key is in server.json of its folder, for the owner of the folder alone"}


class StartKey:
    """An ASGI layer: without the key nothing but `/health` is answered, whatever the path."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = scope["type"] == "http" and self._holds(scope)
        scope[KEY_SHOWN] = shown
        if scope["type"] == "http" and scope["path"] != HEALTH and not shown:
            refusal = JsonResponse(REFUSED, UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer", "Connection": "close"})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _holds(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and shows_key(given[0].decode("latin-1"), self._key)
