"""A webhook endpoint: checks the secret, and responds after the commit."""

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

MAX_POST_BYTES = 1024 * 1024
AsgiScope: TypeAlias = Any
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Webhook(Struct, frozen=True):
    """A webhook. `take` commits the posted update; if it raises, the response asks the platform to post it again."""

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
            log.warning("refused a webhook request without the secret")
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
            log.error("could not store a webhook request: %s", error.line())
            return 503
        except Exception:
            log.exception("could not handle a webhook request")
            return 500
        return 200


async def _read(receive: Receive) -> bytes | None:
    """Return the whole body, or None if it is too large or incomplete."""
    body: bytes = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > MAX_POST_BYTES:
            return None
        if not event.get("more_body", False):
            return body
