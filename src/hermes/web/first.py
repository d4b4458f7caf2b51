"""The first screen: whether memory works, what changed since the last look, and a box to talk."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.web.drawing import page
from hermes.web.routing import host_of
from hermes.web.transcript import list_own


async def show_first(request: Request) -> Response:
    host = host_of(request)
    listed, _ = await host.read(lambda store, people, tx: list_own(store, people, tx, 1))
    return page(request, "first.html", listed=listed[:5], trouble=host.trouble, draft="")


def routes() -> list[Route]:
    return [Route("/", show_first)]
