"""News of memory since the owner's last visit, and the state of memory in a sentence.

The first screen: the state of memory, changes since the last visit, and a box for a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hermes.db.engine import Tx
from hermes.errors import HermesError
from hermes.memory.book import MemoryBook, Remembering
from hermes.memory.registry import NONE
from hermes.owner.status import read_outboxes
from hermes.scope import OWNER
from hermes.settings import PROVIDER
from hermes.store.corrections import Correction, corrections_of
from hermes.store.memory_rows import get_value, set_value
from hermes.web.drawing import page
from hermes.web.host import WebHost
from hermes.web.memory import SAYS, fact_path
from hermes.web.routing import PageForm, form_route, host_of, redirect
from hermes.web.transcript import list_own

KIND, SEEN, VISITED, KEPT = "web", "seen", "visited", "kept"
MEMORY_OFF = "Memory is off: only the notes are kept."
VISIT_SECONDS = 1800.0
"""A request this long after the last one begins a new visit: earlier news counts as seen."""
MAX_NEWS, MAX_KEPT, MAX_CHANGED = 12, 500, 6
MINUTE_SECONDS = 60.0
MAX_FACTS_READ = 50
"""Number of facts that are read to find new ones."""


class Learnt(Struct, frozen=True):
    """A new entry with the sentence from which it was learnt; "" if the entry repeats it."""

    entry: Remembering
    source: str = ""


class ForgottenMoment(Struct, frozen=True):
    """When the owner had entries forgotten, and how many; their text is not stored."""

    at: float
    count: int


class News(Struct, frozen=True):
    """News since `since`. `total` is the number of known facts; None from a provider that does not count."""

    since: float
    total: int | None
    learnt: Sequence[Learnt] = ()
    more: bool = False
    changed: Sequence[Remembering] = ()
    """Facts that a newer fact replaced."""
    corrected: Sequence[Correction] = ()
    forgotten: Sequence[ForgottenMoment] = ()
    remarks: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.learnt or self.changed or self.corrected or self.forgotten)


async def begin_visit(host: WebHost) -> float:
    """Return the time after which entries count as new. A new visit moves it to the end of the previous visit."""
    name, now = host.app.settings.get(PROVIDER), host.now

    def visit(tx: Tx) -> float:
        seen, visited = get_value(tx, name, KIND, SEEN), get_value(tx, name, KIND, VISITED)
        if visited is not None and now - visited > VISIT_SECONDS:
            seen = visited
            set_value(tx, name, KIND, KEPT, None)
        if seen is None:
            seen = 0.0
        set_value(tx, name, KIND, SEEN, seen)
        set_value(tx, name, KIND, VISITED, now)
        return float(seen)

    return await host.store.write(visit)


async def keep(host: WebHost, entry_id: str) -> None:
    """Confirm an entry and so remove it from the news; "" confirms all."""
    name, now = host.app.settings.get(PROVIDER), host.now

    def change(tx: Tx) -> None:
        kept = [*(get_value(tx, name, KIND, KEPT) or []), entry_id][-MAX_KEPT:] if entry_id else None
        set_value(tx, name, KIND, KEPT, kept)
        if not entry_id:
            set_value(tx, name, KIND, SEEN, now)

    await host.store.write(change)


async def read_news(host: WebHost, since: float) -> News:
    """Return the news, the newest first, without confirmed facts."""
    name = host.app.settings.get(PROVIDER)
    kept, corrections = await host.store.read(
        lambda tx: (frozenset(get_value(tx, name, KIND, KEPT) or []), corrections_of(tx, OWNER))
    )
    found = await host.book.page(limit=MAX_FACTS_READ)
    facts = [one for one in found.entries if one.id not in kept and one.target is None]
    new = [one for one in facts if one.at is not None and one.at > since and one.until is None]
    changed = [one for one in facts if one.until is not None and max(one.at or 0.0, one.until) > since]
    return News(
        since,
        found.total,
        [Learnt(one, await _source_of(host.book, one)) for one in new[:MAX_NEWS]],
        len(new) > MAX_NEWS,
        changed[:MAX_CHANGED],
        [one for one in corrections if one.right and one.at > since][:MAX_CHANGED],
        _forgotten([one.at for one in corrections if not one.right and one.at > since])[:MAX_CHANGED],
        found.remarks,
    )


def _forgotten(moments: Sequence[float]) -> list[ForgottenMoment]:
    """Return the moments, the newest first; entries forgotten within one minute count as one wish."""
    groups = groupby(sorted(moments, reverse=True), lambda at: int(at // MINUTE_SECONDS))
    return [ForgottenMoment(wished[0], len(wished)) for wished in (list(group) for _, group in groups)]


async def _source_of(book: MemoryBook, entry: Remembering) -> str:
    """Return the sentence from which an entry was learnt; "" if the entry repeats it."""
    try:
        sources = await book.sources(entry)
    except HermesError:
        return ""  # the page reports a memory failure elsewhere
    return next((one.text for one in sources if one.text.strip() != entry.text.strip()), "")


async def describe_memory(host: WebHost, news: News | None) -> str:
    """Return the state of memory in one or two sentences."""
    name = host.app.settings.get(PROVIDER)
    if name == NONE:
        return MEMORY_OFF
    outbox = (await host.store.read(lambda tx: read_outboxes(tx, host.now))).get(name)
    waiting, aside = (0, 0) if outbox is None else (outbox["waiting"], outbox["put_aside"])
    works = "Memory is not working." if await host.trouble() else "Memory works."
    known = ""
    if news is not None and news.total is not None:
        known = f"{news.total:,} {'thing' if news.total == 1 else 'things'} known, "
    waits = f"{waiting:,} {'waits' if waiting == 1 else 'wait'} to be sent to it" if waiting else "nothing waits"
    refused = f", {aside:,} {'was' if aside == 1 else 'were'} refused" if aside else ""
    told = f"{known}{waits}{refused}."
    return f"{works} {told[0].upper()}{told[1:]}"


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
