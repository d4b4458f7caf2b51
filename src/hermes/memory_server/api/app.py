"""The application: every route over one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.responses import Response

from hermes import __version__
from hermes.clock import Clock
from hermes.memory_server.api import (
    chat,
    conclusions,
    context,
    faults,
    messages,
    peers,
    scopes,
    search,
    sessions,
    webhooks,
    workspaces,
)
from hermes.memory_server.api.intake import Intake
from hermes.memory_server.api.loading import Loading
from hermes.memory_server.api.metrics import Metrics
from hermes.memory_server.api.server import Here, Options, Server
from hermes.memory_server.api.wire import Json
from hermes.memory_server.db.database import Database
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.delivery import Delivery
from hermes.memory_server.engine.health import OK, Health
from hermes.memory_server.engine.parsing import Parsers
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.worker import working
from hermes.memory_server.threads import compute
from hermes.memory_server.tokens import count_tokens

Opener = Callable[[], Database]


async def _warm_up(embedder: Embedder, health: Health) -> None:
    """Read the vocabularies, so that the first message does not wait for them; requests are answered meanwhile.

    Then look through the file.
    """
    await compute(count_tokens, "ready")
    await embedder.embed(["ready"])
    await health.inspect()


def create_app(
    open_: Opener, *, clock: Clock, options: Options, embedder: Embedder, open_for_work: Opener | None
) -> FastAPI:
    """An application that takes its database when it starts, and closes it when it ends.

    Background work has a database of its own; with none it is left to others.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = open_()
        health = Health(database, clock)
        delivery = Delivery(options.webhook_secret)
        vectors = VectorIndex(embedder.space.dimension, folder=database.folder)
        loading = Loading(database, vectors.outlines)
        server = Server(database, clock, options, embedder, vectors, health, Parsers())
        app.state.server = server
        warming = asyncio.create_task(_warm_up(embedder, health))
        try:
            if open_for_work is None:
                yield
            else:
                async with working(open_for_work(), clock, embedder, delivery) as server.worker:
                    yield
        finally:
            warming.cancel()
            with suppress(asyncio.CancelledError):
                await warming
            await loading.close()
            await health.close()
            await database.close()

    app = FastAPI(
        title="Hermes memory server", summary="The Honcho v3 API", version=__version__, lifespan=lifespan,
        redirect_slashes=False,
    )  # fmt: skip
    metrics = Metrics()
    app.add_middleware(Intake)
    app.add_middleware(metrics.middleware())
    faults.install(app)
    # The first that fits answers, so what is asked most comes first.
    for room in (search, messages, context, workspaces, conclusions, peers, sessions, chat, scopes, webhooks):
        app.router.routes.extend(room.router.routes)  # an included router costs each request another round of matching

    @app.get("/health", tags=["server"], responses={503: {"description": "The file is damaged, full or read-only."}})
    async def health(here: Here) -> Response:
        """Is the server up, and can it read and write its file?"""
        status = await here.health.status()
        return Json({"status": status}, 200 if status == OK else 503)

    @app.get("/metrics", tags=["server"], response_class=Response)
    async def show_metrics() -> Response:
        """Counters for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return app
