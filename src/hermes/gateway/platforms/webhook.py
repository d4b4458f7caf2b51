"""An endpoint that a platform posts to: the secret is checked first, and the answer comes after the commit."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Struct

from hermes.errors import HermesError
from hermes.types import Json

log = logging.getLogger("hermes.gateway.webhook")

LARGEST = 1024 * 1024
AsgiScope: TypeAlias = Any
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Webhook(Struct, frozen=True):
    """The endpoint. `take` commits what was posted; when it raises, the platform is asked to post it again."""

    secret_header: str
    secret: str
    take: Callable[[Json], Awaitable[None]]

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status = await self._answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def _answer(self, scope: AsgiScope, receive: Receive) -> int:
        if scope["method"] != "POST":
            return 405
        wanted = self.secret_header.lower().encode()
        given = next((value for name, value in scope["headers"] if name == wanted), b"")
        if not hmac.compare_digest(given, self.secret.encode()):
            log.warning("a post without the secret was refused")
            return 401
        body = await _read(receive)
        if body is None:
            return 413
        try:
            posted = json.loads(body)
        except (ValueError, RecursionError):
            return 400
        try:
            await self.take(posted)
        except HermesError as error:
            log.error("a post could not be stored: %s", error.line())
            return 503
        except Exception:
            log.exception("a post could not be taken")
            return 500
        return 200


async def _read(receive: Receive) -> bytes | None:
    """The whole body, or None when it is too large or breaks off."""
    body: bytes = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > LARGEST:
            return None
        if not event.get("more_body", False):
            return body
