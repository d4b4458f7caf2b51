"""The application: every route over one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

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
    sessions,
    webhooks,
    workspaces,
)
from hermes.memory_server.api.body_limit import BodyLimit
from hermes.memory_server.api.metrics import Metrics
from hermes.memory_server.api.server import Options, Server
from hermes.memory_server.api.wire import Json
from hermes.memory_server.db.engine import Database
from hermes.memory_server.db.schema import open_for_work
from hermes.memory_server.engine.embed import embed
from hermes.memory_server.engine.worker import Worker
from hermes.memory_server.tokens import count_tokens


def _warm_up() -> None:
    """Read the vocabularies, so that the first message does not wait for them; requests are answered meanwhile."""
    count_tokens("ready")
    embed("ready")


def create_app(open_: Callable[[], Database], *, clock: Clock, options: Options, with_worker: bool) -> FastAPI:
    """An application that takes its database when it starts, and closes it when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = open_()
        server = Server(database, clock, options)
        app.state.server = server
        warming = asyncio.create_task(asyncio.to_thread(_warm_up))
        background = open_for_work(database.path.parent) if with_worker else None
        worker = Worker(background, clock, webhook_secret=options.webhook_secret) if background else None
        server.worker = worker
        working = asyncio.create_task(worker.run()) if worker else None
        try:
            yield
        finally:
            if worker is not None and working is not None and background is not None:
                worker.stop()
                await working
                await background.close()
            await warming
            await database.close()

    app = FastAPI(
        title="Hermes memory server", summary="The Honcho v3 API", version=__version__, lifespan=lifespan,
        redirect_slashes=False,
    )  # fmt: skip
    metrics = Metrics()
    app.add_middleware(BodyLimit)
    app.add_middleware(metrics.middleware())
    faults.install(app)
    # The first that fits answers, so what is asked most comes first.
    for room in (messages, context, workspaces, conclusions, peers, sessions, chat, scopes, webhooks):
        app.router.routes.extend(room.router.routes)  # an included router costs each request another round of matching

    @app.get("/health", tags=["server"])
    async def health() -> Response:
        """Is the server up?"""
        return Json({"status": "ok"})

    @app.get("/metrics", tags=["server"], response_class=Response)
    async def show_metrics() -> Response:
        """Counters for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return app
