"""Routes of health: memory, gateway, models, queues, dead letters, and activity over time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.db.engine import Tx
from hermes.doctor import examine
from hermes.errors import UsageError
from hermes.owner.status import SPANS, ActivityBucket, ActivitySpan, read_activity, read_health
from hermes.owner.waiting import WaitingEntry, all_queues, drop_entries, find_dead, list_entries, retry_entries
from hermes.store.people import People
from hermes.store.store import Store
from hermes.web.chat import session_path
from hermes.web.drawing import page
from hermes.web.host import WebHost
from hermes.web.routing import PageForm, form_route, host_of, read_number, redirect

MAX_LETTERS = 50
LETTER = "/health/letters/{entry:number}"
SAYS: Mapping[str, str] = {
    "retried": "It is tried again.",
    "all": "Everything that failed for good is tried again.",
    "dropped": "Dropped for good.",
}
KINDS: Mapping[str, str] = {
    "said": "what was said",
    "reply": "a reply",
    "note": "a note",
    "delegation": "a sub-agent's result",
    "forget": "forget a session",
    "correct": "correct or forget a fact",
    "undo": "forget messages",
    "inbox": "a message to the agent",
    "outbound": "a reply to a chat",
}
"""Descriptions of the kinds of entries. Other kinds belong to the provider."""


def read_span(text: str) -> ActivitySpan:
    if text not in SPANS:
        raise UsageError(f"`span` is '{text[:20]}'", hint=f"Use one of {', '.join(SPANS)}")
    return SPANS[text]


async def read_letters(host: WebHost, after: int = 0, limit: int = MAX_LETTERS) -> tuple[Sequence[WaitingEntry], bool]:
    """Return dead letters of all queues, and whether there are more."""

    def look(store: Store, people: People, tx: Tx) -> list[WaitingEntry]:
        return list_entries(store, people, tx, "dead", limit + 1, after=after, among=all_queues(tx))

    found = await host.read(look)
    return found[:limit], len(found) > limit


async def read_buckets(host: WebHost, span: ActivitySpan) -> list[ActivityBucket]:
    return await host.read(lambda store, _, tx: read_activity(store, tx, span, host.now))


async def retry(host: WebHost, entry: int | None) -> list[int]:
    """Retry a dead letter, or all of them."""
    ids = None if entry is None else [entry]
    done = await host.store.write(lambda tx: retry_entries(host.store, tx, ids, all_queues(tx)))
    host.memory.start_deliveries()
    return done


async def drop(host: WebHost, entry: int) -> None:
    """Delete a dead letter. Raises NotFoundError for any other entry."""

    def drop_dead(tx: Tx) -> None:
        find_dead(host.store, host.people, tx, entry)
        drop_entries(tx, [entry], all_queues(tx))

    await host.store.write(drop_dead)


async def show_health(request: Request) -> Response:
    host, query = host_of(request), request.query_params
    span = read_span(query.get("span", "day"))
    health, (letters, more), buckets, trouble = await asyncio.gather(
        read_health(host.app, host.store, host.memory.provider),
        read_letters(host, read_number(query.get("after", "")) or 0),
        read_buckets(host, span),
        host.trouble(),
    )
    return page(
        request, "health.html", health=health, letters=letters, more=more, buckets=buckets, span=span, kinds=KINDS,
        trouble=trouble, done=SAYS.get(query.get("done", ""), ""), path_of=session_path,
    )  # fmt: skip


async def show_checks(request: Request) -> Response:
    """Show the findings of `hermes doctor`. Read-only."""
    host = host_of(request)
    findings = await asyncio.to_thread(lambda: list(examine(host.app.home, host.app.clock)))
    return page(request, "checks.html", findings=findings)


async def show_letter(request: Request) -> Response:
    """Show a dead letter before it is deleted."""
    number: int = request.path_params["entry"]
    entry = await host_of(request).read(lambda store, people, tx: find_dead(store, people, tx, number))
    values: dict[str, Any] = {"entry": entry, "kinds": KINDS, "path_of": session_path}
    return page(request, "letter.html", **values)


async def retry_letter(request: Request, _: PageForm) -> Response:
    await retry(host_of(request), request.path_params["entry"])
    return redirect("/health?done=retried#letters")


async def retry_letters(request: Request, _: PageForm) -> Response:
    await retry(host_of(request), None)
    return redirect("/health?done=all#letters")


async def drop_letter(request: Request, _: PageForm) -> Response:
    await drop(host_of(request), request.path_params["entry"])
    return redirect("/health?done=dropped#letters")


def routes() -> list[Route]:
    return [
        Route("/health", show_health),
        Route("/health/checks", show_checks),
        form_route("/health/letters", retry_letters),
        Route(LETTER, show_letter),
        form_route(f"{LETTER}/retry", retry_letter),
        form_route(f"{LETTER}/drop", drop_letter),
    ]
