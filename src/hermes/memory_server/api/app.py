"""The application: all routes over one database.

`/health`. It reports the state seen last, so that it is as fast under load as without.

`/docs`: the OpenAPI document as an HTML page, without scripts or external resources.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from hermes import __version__
from hermes.clock import Clock
from hermes.errors import StoreError
from hermes.loopback import CHALLENGE, CHALLENGE_CHARS, PROOF, prove
from hermes.memory_server import times
from hermes.memory_server.api import (
    chat,
    conclusions,
    consent,
    context,
    extensions,
    faults,
    messages,
    oauth,
    peers,
    portable,
    recall,
    scopes,
    sessions,
    webhooks,
    workspaces,
)
from hermes.memory_server.api.auth import Admin, StartKey
from hermes.memory_server.api.bodies import Detail, JsonResponse
from hermes.memory_server.api.intake import BodyIntake
from hermes.memory_server.api.life import Life, end_when_lost, end_when_unused
from hermes.memory_server.api.metrics import HEALTH, RequestCounts, Traffic, show_metrics
from hermes.memory_server.api.server import Options, Server, ServerDep
from hermes.memory_server.db.database import Database
from hermes.memory_server.db.neighbours import VectorScope
from hermes.memory_server.embedder import Embedder
from hermes.memory_server.engine.embedding import Refinement, refining
from hermes.memory_server.engine.health import OK, ServerHealth
from hermes.memory_server.engine.memory_indexes import MemoryIndexes, clean_memory_indexes
from hermes.memory_server.engine.near_vectors import queue_indexing
from hermes.memory_server.engine.parsing import Parsers
from hermes.memory_server.engine.vectors import VectorIndex
from hermes.memory_server.engine.webhooks import WebhookDelivery
from hermes.memory_server.engine.worker import working
from hermes.memory_server.model.door import ModelDoor
from hermes.memory_server.model.settings import SettingsFile
from hermes.memory_server.threads import compute
from hermes.memory_server.tokens import count_tokens

EXTENSIONS: tuple[str, ...] = (
    "idempotency",
    "delete_peer",
    "delete_messages",
    "edit_conclusion",
    "provenance",
    "merge_peers",
    "move_in_session",
    "export",
    "import",
    "search_scores",
    "evidence",
    "context_views",
    "narrow_answers",
    "both_views",
    "truth_over_time",
    "dreams",
    "reread",
)
"""One name per extension. A name never changes its meaning."""


async def report_health(request: Request, here: ServerDep) -> Response:
    """Return the server's state, its backlog, and the extensions that it offers beyond the official API."""
    file = await here.health.status()
    stopped = here.worker is not None and not here.worker.is_alive()
    status = "worker stopped" if file == OK and stopped else file
    return JsonResponse(_describe(here, status, file), 200 if status == OK else 503, headers=_proof(request, here))


def _describe(here: Server, status: str, file: str) -> dict[str, Any]:
    backlog = here.health.backlog
    worker = "elsewhere" if here.worker is None else "running" if here.worker.is_alive() else "stopped"
    return {
        "status": status,
        "version": __version__,
        "database": file,
        "worker": worker,
        "model": _describe_model(here),
        "finer_vectors": _describe_finer(here),
        "lag": {
            "waiting_jobs": backlog.waiting,
            "oldest_job_seconds": round(backlog.oldest, 3),
            "messages_without_vector": backlog.unfindable,
            "retried": backlog.retried,
            "reasons": backlog.reasons,
        },
        "rereading": here.health.rereading,
        "disk_free_bytes": here.health.free_bytes,
        "extensions": EXTENSIONS,
    }


def _describe_model(here: Server) -> dict[str, Any] | None:
    """Return the state of the model; None if answers, summaries and conclusions are made without one."""
    told = here.models.report()
    return None if told is None else told | {"today": here.health.model_calls, "waiting": here.health.deferred}


def _describe_finer(here: Server) -> dict[str, Any] | None:
    if here.refinement is None:
        return None
    told = {"embedder": here.refinement.name, "state": here.refinement.state}
    return told | {
        "messages_without": here.health.without_finer,
        "messages_refused": here.health.refused_by_finer,
    }


def _proof(request: Request, here: Server) -> dict[str, str]:
    challenge = request.headers.get(CHALLENGE, "")
    if not here.options.start_id or not 0 < len(challenge) <= CHALLENGE_CHARS:
        return {}
    return {PROOF: prove(here.options.start_id, challenge)}


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
}
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
summary, td:first-child { font-family: ui-monospace, monospace }
summary, h3, td:last-child { overflow-wrap: anywhere }
summary { cursor: pointer } summary span { font-family: system-ui, sans-serif; opacity: .75 }
table { border-collapse: collapse; margin: .5rem 0 1rem } td, th { padding: .15rem .75rem .15rem 0; text-align: left }
"""
LIMITS = ("format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default")
Spec = dict[str, Any]


# Swagger UI is 2 MB of scripts, which would run where no key is asked for, with buttons that the server refuses.
def write_page(spec: Spec) -> str:
    """Return the page, with every route by tag and every schema that routes use."""
    title = f"{escape(spec['info']['title'])} {escape(spec['info']['version'])}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    intro = f'<h1>{title}</h1><p>{escape(spec["info"]["summary"])}, as <a href="/openapi.json">OpenAPI</a>.</p>'
    body = "".join([intro, *_write_routes(spec), "<h2>shapes</h2>", *_write_shapes(spec)])
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>'


def _write_routes(spec: Spec) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in spec["paths"].items():
        for method, route in methods.items():
            by_tag.setdefault(route["tags"][0], []).append(_write_route(f"{method.upper()} {path}", route))
    for tag, routes in sorted(by_tag.items()):
        yield f"<h2>{escape(tag)}</h2>{''.join(routes)}"


def _write_route(name: str, route: Spec) -> str:
    taken = [(given["name"], given["in"], _needed(given), given["schema"]) for given in route.get("parameters", [])]
    body = route.get("requestBody", {})
    taken += [("body", kind, _needed(body), content["schema"]) for kind, content in body.get("content", {}).items()]
    good = [status for status in route["responses"] if status.startswith("2")]
    given = [
        (status, kind, "", content.get("schema", {}))
        for status in good
        for kind, content in route["responses"][status].get("content", {"": {}}).items()
    ]
    bad = f"<p>or fails with {', '.join(sorted(route['responses'].keys() - {*good}))}</p>"
    what = escape(route.get("description") or route["summary"])
    tables = _write_table("takes", taken) + _write_table("answers", given)
    return f"<details><summary>{escape(name)} <span>{what}</span></summary>{tables}{bad}</details>"


def _write_shapes(spec: Spec) -> Iterator[str]:
    for name, shape in sorted(spec["components"]["schemas"].items()):
        needed = shape.get("required", [])
        fields = [
            (field, "", "required" if field in needed else "optional", schema)
            for field, schema in shape.get("properties", {}).items()
        ]
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3>{_write_table("field", fields) or _write_type(shape)}'


def _write_table(title: str, rows: list[tuple[str, str, str, Spec]]) -> str:
    lines = [
        f"<tr><td>{escape(name)}<td>{escape(place)}<td>{escape(note)}<td>{_write_type(schema)}"
        for name, place, note, schema in rows
    ]
    return f"<table><tr><th>{title}</th></tr>{''.join(lines)}</table>" if rows else ""


def _needed(given: Spec) -> str:
    return "required" if given.get("required") else "optional"


def _write_type(schema: Spec) -> str:
    """Return the HTML for a type, with links to the schemas in it."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_write_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(escape(repr(one)) for one in schema["enum"])
    limits = ", ".join(f"{escape(name)} {escape(str(schema[name]))}" for name in LIMITS if name in schema)
    inside = schema.get("items") or schema.get("additionalProperties")
    of = f" of {_write_type(inside)}" if isinstance(inside, dict) else ""
    return f"{escape(schema.get('type', 'anything'))}{of}{f' ({limits})' if limits else ''}"


logger = logging.getLogger(__name__)


class Loading:
    """Background tasks of searches: load the index of a workspace, or queue the vector index of a large scope, once
    each."""

    def __init__(self, database: Database, memory_indexes: MemoryIndexes, clock: Clock) -> None:
        self._database = database
        self._memory_indexes = memory_indexes
        self._clock = clock
        self._tasks: dict[int | VectorScope, asyncio.Task[None]] = {}
        loop = asyncio.get_running_loop()
        memory_indexes.load_later = lambda workspace_id: loop.call_soon_threadsafe(self._begin, workspace_id)
        memory_indexes.index_later = lambda scope: loop.call_soon_threadsafe(self._index, scope)

    async def close(self) -> None:
        """Cancel running tasks; the next start repeats them."""
        self._memory_indexes.load_later = None
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, workspace_id: int) -> None:
        if workspace_id not in self._tasks:
            self._tasks[workspace_id] = asyncio.create_task(self._load(workspace_id))

    async def _load(self, workspace_id: int) -> None:
        try:
            await self._database.read(lambda tx: self._memory_indexes.load(tx, workspace_id))
        except StoreError as error:
            # The next search requests it again, and continues from what was read.
            logger.warning("The in-memory index of workspace %d is not loaded yet: %s", workspace_id, error)
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
        await clean_memory_indexes(database, abandoned=0.0)
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
        loading = Loading(database, vectors.memory_indexes, clock)
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
        recall,
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
        return HTMLResponse(write_page(app.openapi()), headers=HEADERS)

    if (end := life.end) is not None:

        @app.post("/stop", include_in_schema=False)
        async def stop() -> Response:
            """Finish what is being done, then end."""
            end()
            return JsonResponse({"status": "ending"}, 202)
