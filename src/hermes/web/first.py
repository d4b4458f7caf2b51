"""The first screen: the state of memory, changes since the last visit, and a box for a message."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hermes.web.drawing import page
from hermes.web.host import WebHost
from hermes.web.memory import SAYS, fact_path
from hermes.web.news import News, begin_visit, describe_memory, keep, read_news
from hermes.web.routing import PageForm, form_route, host_of, redirect
from hermes.web.transcript import list_own

FIRST_SCREEN_NEWS_SECONDS, NEWS_PAGE_SECONDS = 0.06, 20.0
"""Longest wait for news of memory: on the first screen, and on the page with only the news, which allows a memory
server to start."""
MAX_SESSIONS = 5


async def show_first(request: Request) -> Response:
    return await _draw(request, FIRST_SCREEN_NEWS_SECONDS)


async def show_news(request: Request) -> Response:
    """Show the first screen with news that took longer."""
    return await _draw(request, NEWS_PAGE_SECONDS)


async def _draw(request: Request, seconds: float) -> HTMLResponse:
    host = host_of(request)
    since = await begin_visit(host)
    news = await _within(host, since, seconds)
    listed, _ = await host.read(lambda store, people, tx: list_own(store, people, tx, 1))
    return page(
        request, "first.html", listed=listed[:MAX_SESSIONS], trouble=await host.trouble(), draft="", news=news,
        sentence=await describe_memory(host, news), fact_path=fact_path, is_late=news is None,
        done=SAYS.get(request.query_params.get("done", ""), ""),
    )  # fmt: skip


async def _within(host: WebHost, since: float, seconds: float) -> News | None:
    reading = asyncio.create_task(read_news(host, since))
    done, _ = await asyncio.wait({reading}, timeout=seconds)
    if done:
        return reading.result()
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    return None


async def keep_entry(request: Request, form: PageForm) -> Response:
    await keep(host_of(request), form.get("id", "")[:200])
    return redirect("/")


async def undo_change(request: Request, form: PageForm) -> Response:
    """Undo a change: the entry and its replacement both hold."""
    host = host_of(request)
    entry = await host.book.find(form.get("id", ""))
    undone = await host.book.changes(entry, undo=True)
    return redirect(f"/?done={'undone' if undone else 'nothing'}")


def routes() -> list[Route]:
    return [
        Route("/", show_first),
        Route("/news", show_news),
        form_route("/news/keep", keep_entry),
        form_route("/news/undo", undo_change),
    ]
