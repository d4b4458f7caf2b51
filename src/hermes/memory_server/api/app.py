"""The application: all routes over one database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

from hermes import __version__
from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.memory_server import times
from hermes.memory_server.api import (
    chat,
    conclusions,
    consent,
    context,
    docs_page,
    extensions,
    faults,
    messages,
    oauth,
    peers,
    portable,
    rereading,
    scopes,
    search,
    sessions,
    webhooks,
    workspaces,
)
from hermes.memory_server.api.auth import Admin, StartKey
from hermes.memory_server.api.health import report_health
from hermes.memory_server.api.intake import BodyIntake
from hermes.memory_server.api.life import Life, end_when_lost, end_when_unused
from hermes.memory_server.api.metrics import RequestCounts, show_metrics
from hermes.memory_server.api.replies import Detail
from hermes.memory_server.api.server import Options, Server, ServerDep
from hermes.memory_server.api.traffic import HEALTH, Traffic
from hermes.memory_server.api.wire import JsonResponse
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.delivery import WebhookDelivery
from hermes.memory_server.engine.embedding import Refinement, refining
from hermes.memory_server.engine.health import ServerHealth
from hermes.memory_server.engine.near_vectors import queue_indexing
from hermes.memory_server.engine.outlines import Outlines, clean_outlines
from hermes.memory_server.engine.parsing import Parsers
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.worker import working
from hermes.memory_server.model.door import ModelDoor
from hermes.memory_server.model.settings import SettingsFile
from hermes.memory_server.threads import compute
from hermes.memory_server.tokens import count_tokens

logger = logging.getLogger(__name__)


class Loading:
    """Background tasks of searches: load the outline of a workspace, or queue the vector index of a large scope, once
    each."""

    def __init__(self, database: Database, outlines: Outlines, clock: Clock) -> None:
        self._database = database
        self._outlines = outlines
        self._clock = clock
        self._tasks: dict[int | VectorScope, asyncio.Task[None]] = {}
        loop = asyncio.get_running_loop()
        outlines.load_later = lambda workspace_id: loop.call_soon_threadsafe(self._begin, workspace_id)
        outlines.index_later = lambda scope: loop.call_soon_threadsafe(self._index, scope)

    async def close(self) -> None:
        """Cancel running tasks; the next start repeats them."""
        self._outlines.load_later = None
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, workspace_id: int) -> None:
        if workspace_id not in self._tasks:
            self._tasks[workspace_id] = asyncio.create_task(self._load(workspace_id))

    async def _load(self, workspace_id: int) -> None:
        try:
            await self._database.read(lambda tx: self._outlines.load(tx, workspace_id))
        except StoreError as error:
            # The next search requests it again, and continues from what was read.
            logger.warning("The outline of workspace %d is not loaded yet: %s", workspace_id, error)
        finally:
            del self._tasks[workspace_id]

    def _index(self, scope: VectorScope) -> None:
        if scope not in self._tasks:
            self._tasks[scope] = asyncio.create_task(self._queue(scope))

    async def _queue(self, scope: VectorScope) -> None:
        """Queue the index of a scope, once. Its vectors stay in memory until the next start."""
        try:
            await self._database.write(lambda tx: queue_indexing(tx, scope, times.now(self._clock)))
        except StoreError:
            del self._tasks[scope]  # the next search retries


Opener = Callable[[], Database]

WARM_UP_DELAY_SECONDS = 0.1
"""Delay that leaves the first moments to requests: most programs that start the server have one."""


async def _warm_up(database: Database, embedder: Embedder, health: ServerHealth) -> None:
    """Load the embedder and the token vocabulary, so that the first message does not wait for them.

    Before that, clean up what the last process left behind; afterwards, inspect the file."""
    await asyncio.sleep(WARM_UP_DELAY_SECONDS)
    try:
        await clean_outlines(database, abandoned=0.0)
    except StoreError as error:
        health.note(error)
    await embedder.embed(["ready"])  # first, since searches need only this
    await compute(count_tokens, "ready")
    await health.inspect()


def create_app(
    open_: Opener,
    *,
    clock: Clock,
    options: Options,
    embedder: Embedder,
    open_for_work: Opener | None,
    life: Life | None = None,
    finer: Embedder | None = None,
    model_file: SettingsFile | None = None,
) -> FastAPI:
    """Return the application. It opens its database when it starts, and closes it when it ends.

    Background work uses a second connection from `open_for_work`; with None, other processes do it. Without `life` the
    server runs until it is stopped. With the second embedder `finer`, messages get its vectors in the background, and
    searches use both kinds. `model_file` holds the model settings, by default the file in the database's folder."""
    life = life or Life()
    requests = RequestCounts()
    traffic = Traffic([requests.count, *life.listeners])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = open_()
        refinement = None if finer is None else Refinement(finer)
        health = ServerHealth(database, clock, refinement)
        delivery = WebhookDelivery(options.webhook_secret)
        vectors = VectorIndex(embedder.space.dimension, folder=database.folder)
        loading = Loading(database, vectors.outlines, clock)
        models = ModelDoor(database, clock, model_file)
        server = Server(database, clock, options, embedder, vectors, health, Parsers(), models, refinement)
        app.state.server = server
        beside = [
            asyncio.create_task(_warm_up(database, embedder, health)),
            asyncio.create_task(end_when_unused(life, traffic, server)),
            asyncio.create_task(end_when_lost(life, server)),
            asyncio.create_task(models.watch()),
        ]
        try:
            if open_for_work is None:
                yield
            else:
                work = open_for_work()
                async with (
                    working(work, clock, embedder, delivery, models, dreams=options.dreams) as worker,
                    refining(work, refinement),
                ):
                    server.worker, models.wake = worker, worker.wake
                    yield
        finally:
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await loading.close()
            await models.close()
            await health.close()
            await database.close()

    app = FastAPI(
        title="Hermes memory server", summary="The Honcho v3 API", version=__version__, lifespan=lifespan,
        redirect_slashes=False, docs_url=None, redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # it would look for exporters on each request
    )  # fmt: skip
    app.add_middleware(BodyIntake)
    if options.start_key:
        app.add_middleware(StartKey, key=options.start_key)
    app.add_middleware(lambda inside: partial(traffic.watch, inside))
    faults.install(app)
    # The first matching route answers, so the most frequent routes come first.
    for package in (
        search,
        messages,
        context,
        workspaces,
        conclusions,
        peers,
        sessions,
        chat,
        scopes,
        webhooks,
        extensions,
        rereading,
        portable,
    ):
        app.router.routes.extend(package.router.routes)  # an included router would add a matching step to each request

    if options.use_auth:
        app.router.routes.extend([*oauth.router.routes, *consent.router.routes])
    _add_server_routes(app, requests, life)
    return app


def _add_server_routes(app: FastAPI, requests: RequestCounts, life: Life) -> None:
    broken = {"description": "The server cannot do its work."}

    app.get(HEALTH, tags=["server"], responses={408: {"model": Detail}, 503: broken}, name="health")(report_health)

    @app.get("/metrics", tags=["server"], response_class=Response)
    async def metrics(here: ServerDep, _: Admin) -> Response:
        """Return counters in Prometheus text format. Requires the admin key."""
        return await show_metrics(here, requests)

    @app.get("/docs", include_in_schema=False)
    def show_docs() -> Response:  # in a thread, since building the document takes a while
        return HTMLResponse(docs_page.write_page(app.openapi()), headers=docs_page.HEADERS)

    if (end := life.end) is not None:

        @app.post("/stop", include_in_schema=False)
        async def stop() -> Response:
            """Finish what is being done, then end."""
            end()
            return JsonResponse({"status": "ending"}, 202)
