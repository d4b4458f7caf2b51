"""Routes of memory: entries about the owner, their sources, and how to correct and forget them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any, cast
from urllib.parse import quote, urlencode

import orjson
from msgspec import Struct, to_builtins
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from hermes.errors import HermesError, NotFoundError, UsageError
from hermes.memory.book import BookPage, EntryFilter, MemoryBook, Remembering
from hermes.memory.values import FactChange, Wording
from hermes.store.injections import InjectedLine, find_injection, lines_of
from hermes.web.chat import session_path
from hermes.web.drawing import page, show_day
from hermes.web.host import WebHost
from hermes.web.routing import PageForm, form_route, host_of, redirect
from hermes.web.session_timeline import HeldSpan, draw_timeline
from hermes.web.transcript import find_own

PAGE_ITEMS = 50
MAX_QUERY_CHARS, MAX_CURSOR_CHARS = 300, 80
SAYS: Mapping[str, str] = {
    "corrected": "Corrected, for good.",
    "queued": "It is saved here, and reaches the memory server as soon as that answers.",
    "refused": "The memory server refused it: see “Failed for good” under Health.",
    "forgotten": "Forgotten. Sessions keep what was said until you delete them.",
    "undone": "Undone: both hold.",
    "nothing": "There was nothing to undo.",
    "added": "Noted.",
}
"""The message on the page after a form, by the word in its address."""
KINDS: Mapping[str, str] = {"noted": "Notes", "stated": "Said by you", "derived": "Concluded"}
"""Kinds of entries to which the list can be limited, with their titles."""
CURSOR = re.compile(r"([0-9]{1,9}:\S*)?")
"""The start of a page in the list: a number of notes, and the provider's cursor."""
CHANGED = "this entry was changed since the page was loaded: it says something else now"


class FactGroup(Struct, frozen=True):
    """Entries of one kind or month."""

    name: str
    entries: Sequence[Remembering]


def fact_path(entry_id: str) -> str:
    return f"/memory/facts/{quote(entry_id, safe='')}"


def read_day(text: str) -> float | None:
    """Return the end of a day from a date field. Raises UsageError."""
    if not text:
        return None
    try:
        return (datetime.fromisoformat(text[:10]) + timedelta(days=1)).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"'{text[:20]}' is not a date", hint="Write it as 2026-01-31") from error


def read_kind(text: str) -> EntryFilter | None:
    """Return the requested kind of entries; None for all. Raises UsageError."""
    if text and text not in KINDS:
        raise UsageError(f"'{text[:20]}' is not a kind of entry", hint=f"Use one of {', '.join(KINDS)}")
    return cast(EntryFilter, text) if text else None


def to_words(text: str) -> Wording | None:
    return Wording(tuple(text.split())) if text.strip() else None


class FactListQuery(Struct, frozen=True):
    """Which entries a list shows, and the cursor after which it starts."""

    text: str
    kind: EntryFilter | None
    day: str
    as_of: float | None
    """The end of the day; None for entries that hold now."""
    after: str


def read_fact_query(request: Request) -> FactListQuery:
    """Parse the query of a list. Raises UsageError for an unknown kind, an invalid date, or a cursor of another
    list."""
    query = request.query_params
    after, day = query.get("after", "")[:MAX_CURSOR_CHARS], query.get("day", "").strip()
    if not CURSOR.fullmatch(after):
        raise UsageError("`after` is not a cursor of this list", hint="Follow the links of the page")
    text, kind = query.get("q", "").strip()[:MAX_QUERY_CHARS], read_kind(query.get("kind", ""))
    return FactListQuery(text, kind, day, read_day(day), after)


async def list_facts(host: WebHost, asked: FactListQuery) -> BookPage:
    return await host.book.page(to_words(asked.text), asked.after, PAGE_ITEMS, asked.as_of, asked.kind)


async def browse(request: Request) -> Response:
    return await _draw_list(request)


async def _draw_list(request: Request, *, status: int = 200, problem: str = "", draft: str = "") -> HTMLResponse:
    host, asked = host_of(request), read_fact_query(request)
    found = await list_facts(host, asked)
    onward = {"q": asked.text, "kind": asked.kind or "", "day": asked.day, "after": found.after}
    more = urlencode(onward) if found.after is not None else ""
    return page(
        request, "memory.html", status, found=found, groups=_grouped(found.entries), q=asked.text, day=asked.day,
        more=more, kind=asked.kind, kinds=KINDS, after=asked.after, problem=problem, draft=draft,
        done=SAYS.get(request.query_params.get("done", ""), ""), trouble=await host.trouble(),
        fact_path=fact_path, provider=host.memory.provider is not None,
    )  # fmt: skip


def _grouped(entries: Sequence[Remembering]) -> list[FactGroup]:
    """Group notes by their file, and facts by the month of their source."""

    def name(one: Remembering) -> str:
        if one.target is not None:
            return "Noted about you" if one.target == "user" else "Noted by the agent"
        return show_day(one.at).partition(" ")[2] if one.at else "Facts"

    return [FactGroup(key, list(group)) for key, group in groupby(entries, name)]


async def show_fact(request: Request) -> Response:
    return await _draw_fact(request)


async def _draw_fact(
    request: Request, *, status: int = 200, problem: str = "", draft: str | None = None
) -> HTMLResponse:
    host = host_of(request)
    entry = await host.book.find(request.path_params["entry"])
    sources = await host.book.sources(entry)
    changes = await host.book.changes(entry)
    return page(
        request, "fact.html", status, entry=entry, sources=sources, titles=await host.book.titles(sources),
        changes=changes, corrected=await host.book.corrected_from(entry), path_of=session_path,
        line=draw_timeline(_spans(entry, changes), host.now), problem=problem, here=fact_path(entry.id),
        draft=entry.text if draft is None else draft, done=SAYS.get(request.query_params.get("done", ""), ""),
    )  # fmt: skip


def _spans(entry: Remembering, changes: Sequence[FactChange]) -> list[HeldSpan]:
    """Return a fact, and the facts that it replaced or that replaced it, with the times when each held, if known."""
    own = HeldSpan(entry.text, entry.at, entry.until, is_shown=True)
    older = [HeldSpan(one.text, None, one.at) for one in changes if not one.is_newer and not one.is_contradiction]
    newer = [HeldSpan(one.text, one.at, None) for one in changes if one.is_newer and not one.is_contradiction]
    return [*older, own, *newer] if entry.at is not None else []


async def correct(request: Request, form: PageForm) -> Response:
    """Correct an entry. A change that somebody else made meanwhile is not overwritten."""
    host, text = host_of(request), form.get("text", "").strip()
    try:
        entry = await host.book.find(request.path_params["entry"])
        if form.get("was", entry.text) != entry.text:
            return await _draw_fact(request, status=409, problem=CHANGED, draft=text)
        settled = await host.book.correct(entry, text)
    except NotFoundError as error:
        return await _draw_gone(request, error, text)
    except HermesError as error:
        return await _draw_fact(request, status=400, problem=error.line(), draft=text)
    done = "corrected" if settled == "done" else settled
    is_note = entry.target is not None
    return redirect(f"/memory?done={done}" if is_note else f"{fact_path(entry.id)}?done={done}")


async def _draw_gone(request: Request, error: NotFoundError, text: str) -> HTMLResponse:
    """Report that an entry is gone. The typed text moves to the box that adds an entry."""
    return await _draw_list(request, status=404, problem=error.line(), draft=text)


async def show_forgetting(request: Request) -> Response:
    """Show all that would be forgotten with an entry."""
    host = host_of(request)
    entry = await host.book.find(request.path_params["entry"])
    sources = await host.book.sources(entry)
    late = await host.book.late(entry, sources)
    replies = await host.book.replies([*sources, *late])
    values: dict[str, Any] = {
        "entry": entry,
        "sources": [*sources, *late],
        "replies": replies,
        "here": fact_path(entry.id),
    }
    return page(request, "forget_fact.html", **values)


async def forget_fact(request: Request, form: PageForm) -> Response:
    host = host_of(request)
    entry = await host.book.find(request.path_params["entry"])
    if form.get("was", entry.text) != entry.text:
        raise UsageError(CHANGED, hint="Look at it again")
    done = await host.book.forget(entry, await host.book.sources(entry))
    return redirect(f"/memory?done={'forgotten' if done.settled == 'done' else done.settled}")


async def undo(request: Request, _: PageForm) -> Response:
    """Undo a change: the fact and its replacement both hold."""
    host = host_of(request)
    entry = await host.book.find(request.path_params["entry"])
    undone = await host.book.changes(entry, undo=True)
    return redirect(f"{fact_path(entry.id)}?done={'undone' if undone else 'nothing'}")


async def add(request: Request, form: PageForm) -> Response:
    try:
        await host_of(request).book.add(form.get("text", ""))
    except HermesError as error:
        return await _draw_list(request, status=400, problem=error.line(), draft=form.get("text", ""))
    return redirect("/memory?done=added")


async def show_line(request: Request) -> Response:
    """Show the facts behind a line of a turn, each to be corrected or forgotten."""
    host, params = host_of(request), request.path_params
    line = await host.read(partial(_find_line, **params))
    text, remark = line.text.removeprefix("- "), ""
    entries: Sequence[Remembering] = ()
    try:
        entries = await host.book.said_by(line.text, line.why)
    except HermesError as error:
        remark = error.line()
    if len(entries) == 1 and (act := request.query_params.get("act")) in ("correct", "forget"):
        path = fact_path(entries[0].id)
        return redirect(f"{path}#correct" if act == "correct" else f"{path}/forget")
    values: dict[str, Any] = {"line": line, "text": text, "entries": entries, "remark": remark, "fact_path": fact_path}
    return page(request, "line.html", here=session_path(params["session"]), **values)


def _find_line(store: Any, people: Any, tx: Any, session: str, turn: int, number: int) -> InjectedLine:
    found = find_injection(tx, find_own(store, people, tx, session).id, turn)
    lines = [line for part in found.parts for line in lines_of(part) if line.is_memory]
    if not 1 <= number <= len(lines):
        raise NotFoundError("this line is not in the record", hint="It may have been forgotten since")
    return lines[number - 1]


async def show_people(request: Request) -> Response:
    host = host_of(request)
    portraits = await host.book.portraits()
    return page(request, "people.html", portraits=portraits, fact_path=fact_path, trouble=await host.trouble())


async def export(request: Request) -> Response:
    """Export all entries about the owner as JSON lines."""
    headers = {"Content-Disposition": 'attachment; filename="memory.jsonl"'}
    book = host_of(request).book
    first = await book.page(limit=PAGE_ITEMS)  # an early failure becomes an error page
    return StreamingResponse(_lines(book, first), media_type="application/x-ndjson", headers=headers)


async def _lines(book: MemoryBook, found: Any) -> AsyncIterator[bytes]:
    while True:
        for entry in found.entries:
            yield orjson.dumps(to_builtins(entry)) + b"\n"
        for remark in found.remarks:
            yield orjson.dumps({"remark": remark}) + b"\n"
        if found.after is None:
            return
        await asyncio.sleep(0)
        found = await book.page(after=found.after, limit=PAGE_ITEMS)


def routes() -> list[Route]:
    one = "/memory/facts/{entry:path}"
    return [
        Route("/memory", browse),
        form_route("/memory", add),
        Route("/memory/people", show_people),
        Route("/memory/export", export),
        form_route(f"{one}/correct", correct),
        Route(f"{one}/forget", show_forgetting),
        form_route(f"{one}/forget", forget_fact),
        form_route(f"{one}/undo", undo),
        Route(one, show_fact),
        Route("/sessions/{session:path}/turns/{turn:number}/lines/{number:number}", show_line),
    ]
