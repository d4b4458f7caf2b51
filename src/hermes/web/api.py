"""The pages' data as JSON under `/api`, for requests with the page's cookie or the key of `hermes web key`."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import orjson
from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.errors import UsageError
from hermes.loopback import read_bearer
from hermes.owner.status import read_health
from hermes.store.sessions import Listed
from hermes.types import Json
from hermes.web import health
from hermes.web.chat import MAX_PAGE, read_count
from hermes.web.door import API, STALE
from hermes.web.memory import list_facts, read_fact_query
from hermes.web.routing import host_of, read_number
from hermes.web.session_timeline import read_timeline
from hermes.web.transcript import list_own

TOKEN = "X-CSRF-Token"  # noqa: S105 - the name of a header
CONVERTOR = re.compile(r":\w+(?=})")
MAX_LIMIT = 200
ApiReader: TypeAlias = Callable[[Request], Awaitable[Json]]


def api_route(path: str, read: ApiReader, *, changes: bool = False) -> Route:
    """Return a route that responds with JSON. A route that changes something needs the key, or the cookie and the CSRF
    token."""

    async def answer(request: Request) -> Response:
        if changes and not read_bearer(request.headers.get("authorization")):
            given, token = request.headers.get(TOKEN, ""), request.app.state.door.csrf
            if not hmac.compare_digest(given.encode(), token.encode()):
                raise UsageError(STALE, hint=f"Send the `csrf` of `GET {API}` as `{TOKEN}`")
        return Response(orjson.dumps(await read(request)), media_type="application/json")

    return Route(f"{API}{path}", answer, methods=["POST" if changes else "GET"])


async def show_index(request: Request) -> Json:
    """List the endpoints, and for a browser the CSRF token that changes need."""
    is_keyed = bool(read_bearer(request.headers.get("authorization")))
    paths = [f"{min(one.methods or ())} {CONVERTOR.sub('', one.path)}" for one in routes()]
    return {"endpoints": paths, "csrf": None if is_keyed else request.app.state.door.csrf}


async def show_health(request: Request) -> Json:
    host = host_of(request)
    found = await read_health(host.app, host.store, host.memory.provider)
    return {**found, "trouble": await host.trouble() or None}


async def show_activity(request: Request) -> Json:
    span = health.read_span(request.query_params.get("span", "day"))
    return {"span": span, "items": to_builtins(await health.read_buckets(host_of(request), span))}


async def show_sessions(request: Request) -> Json:
    number = min(read_count(request, "page"), MAX_PAGE)
    listed, more = await host_of(request).read(lambda store, people, tx: list_own(store, people, tx, number))
    return {"items": [_session(one) for one in listed], "page": number, "has_more": more}


def _session(one: Listed) -> Json:
    fields = ("id", "title", "source", "started_at", "message_count")
    return {name: getattr(one.session, name) for name in fields} | {"last_active": one.last_active}


async def show_timeline(request: Request) -> Json:
    before = read_count(request, "before") if "before" in request.query_params else None
    session_id = request.path_params["session"]
    seen = await host_of(request).read(partial(read_timeline, session_id=session_id, before=before))
    return {
        "id": seen.session.id,
        "title": seen.session.title,
        "tokens": seen.tokens,
        "parts": to_builtins(seen.parts),
        "waits": to_builtins(seen.waits),
        "compression_failures": to_builtins(seen.failures),
        "items": to_builtins(seen.entries),
        "before": seen.entries[0].id if seen.has_earlier else None,
    }


async def show_people(request: Request) -> Json:
    return {"items": to_builtins(await host_of(request).book.portraits())}


async def show_facts(request: Request) -> Json:
    found = await list_facts(host_of(request), read_fact_query(request))
    return {
        "items": to_builtins(found.entries),
        "after": found.after,
        "total": found.total,
        "remarks": list(found.remarks),
    }


async def show_fact(request: Request) -> Json:
    book = host_of(request).book
    entry = await book.find(request.path_params["entry"])
    sources, changes = await book.sources(entry), await book.changes(entry)
    return {**to_builtins(entry), "sources": to_builtins(sources), "changes": to_builtins(changes)}


async def show_dead(request: Request) -> Json:
    limit = read_count(request, "limit", health.MAX_LETTERS)
    if limit > MAX_LIMIT:
        raise UsageError(f"`limit` is {limit}", hint=f"Ask for at most {MAX_LIMIT}")
    if (after := read_number(request.query_params.get("after", "0"))) is None:
        raise UsageError("`after` must be a number", hint="Use the `after` of the previous page")
    found, more = await health.read_letters(host_of(request), after, limit)
    return {"items": to_builtins(found), "after": found[-1].id if more else None}


async def retry_dead(request: Request) -> Json:
    return {"retried": await health.retry(host_of(request), request.path_params["entry"])}


async def drop_dead(request: Request) -> Json:
    await health.drop(host_of(request), request.path_params["entry"])
    return {"dropped": [request.path_params["entry"]]}


def routes() -> list[Route]:
    return [
        api_route("", show_index),
        api_route("/health", show_health),
        api_route("/activity", show_activity),
        api_route("/sessions", show_sessions),
        api_route("/sessions/{session:path}/timeline", show_timeline),
        api_route("/people", show_people),
        api_route("/facts", show_facts),
        api_route("/facts/{entry:path}", show_fact),
        api_route("/dead", show_dead),
        api_route("/dead/{entry:number}/retry", retry_dead, changes=True),
        api_route("/dead/{entry:number}/drop", drop_dead, changes=True),
    ]
