"""Routes of conversations: sessions, messages, replies, search and export.

The event stream of a session: new messages, the growing reply, and the state of memory.

Each event is HTML for parts of the page. Its id is the newest message in it, so a page that lost its connection resumes
from the store. Turns of other processes are found by polling the store.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from hermes.db.engine import Tx
from hermes.errors import NotFoundError, StoreError, UsageError
from hermes.scope import OWNER
from hermes.store.export import to_jsonl, to_markdown
from hermes.store.injections import Injection, find_injection
from hermes.store.people import People
from hermes.store.search import HistoryHit
from hermes.store.store import Store
from hermes.types import Session
from hermes.web.drawing import draw, page
from hermes.web.routing import PageForm, form_route, host_of, read_number, redirect
from hermes.web.transcript import find_own, list_own, read_new, read_transcript
from hermes.web.turns import LiveTurn, wait_for

STORE_POLL_SECONDS = 1.0
"""Interval between two reads of messages from other processes."""
MIN_DRAW_SECONDS = 0.08
"""Minimum interval between two renderings of a growing reply."""
KEEPALIVE_SECONDS = 15.0
MAX_FOLLOWERS = 50
"""Maximum number of open streams. A browser has few, because hidden pages close theirs."""
CROWDED = "Too many pages are open. Close some; this one still works when it is loaded again."


async def stream(request: Request) -> Response:
    host, session_id = host_of(request), request.path_params["session"]
    if host.turns.followers >= MAX_FOLLOWERS:
        return PlainTextResponse(CROWDED, 503)
    await host.read(lambda store, people, tx: find_own(store, people, tx, session_id))
    after = read_number(request.headers.get("last-event-id") or request.query_params.get("after", "")) or 0
    return StreamingResponse(_counted(request, session_id, after), media_type="text/event-stream")


async def _counted(request: Request, session_id: str, after: int) -> AsyncIterator[str]:
    turns = host_of(request).turns
    turns.followers += 1
    try:
        async with aclosing(_events(request, session_id, after)) as events:
            async for event in events:
                yield event
    finally:
        turns.followers -= 1


async def _events(request: Request, session_id: str, after: int) -> AsyncGenerator[str, None]:
    """Yield an event whenever something on the page has changed."""
    host, shown, quiet = host_of(request), "", 0.0
    loop = asyncio.get_running_loop()
    csrf, here = request.app.state.door.csrf, request.url.path.removesuffix("/stream")
    while not host.turns.ending.is_set():
        begun, turn = loop.time(), host.turns.turn(session_id)
        changed = host.turns.bell(session_id).next
        try:
            new = await host.read(partial(read_new, session_id=session_id, after=after))
            session = await host.read(lambda store, people, tx: find_own(store, people, tx, session_id))
        except NotFoundError:
            yield _event(draw("gone.html"), after)
            return
        except StoreError:  # reported at the next write
            new = []
        trouble = await host.trouble(session_id)
        parts = draw("live.html", turn=turn, here=here, csrf=csrf, title=session.title, trouble=trouble)
        if new:
            after = new[-1].message.id
        if new or parts != shown:
            added = draw("added.html", shown=new, here=here, csrf=csrf) if new else ""
            yield _event(added + parts, after)
            shown, quiet = parts, loop.time()
        elif loop.time() - quiet > KEEPALIVE_SECONDS:
            yield ": alive\n\n"
            quiet = loop.time()
        # A long reply takes long to render: the browser gets it less often.
        await asyncio.sleep(
            max(MIN_DRAW_SECONDS, 4 * (loop.time() - begun)) if new or (turn and not turn.is_over) else 0
        )
        await wait_for(changed, STORE_POLL_SECONDS)


def _event(html: str, last_id: int) -> str:
    data = "\n".join(f"data: {line}" for line in html.splitlines())
    return f"id: {last_id}\n{data}\n\n"


WEB = "web"
"""The source of sessions that begin on the page."""
MAX_SAID_CHARS = 200_000
MAX_FOUND = 30
MAX_PAGE = 10_000
EMPTY = "the message is empty"
NOT_PLAIN = re.compile(r"[^A-Za-z0-9_]")


def session_path(session_id: str) -> str:
    return f"/sessions/{quote(session_id, safe='')}"


def read_count(request: Request, name: str, default: int = 1) -> int:
    """Return a number above 0 from the query. Raises UsageError."""
    number = read_number(request.query_params.get(name, str(default)))
    if not number:
        raise UsageError(f"`{name}` must be a number above 0", hint="Follow the links of the page")
    return number


async def list_sessions(request: Request) -> Response:
    return await _draw_list(request)


async def _draw_list(request: Request, status: int = 200, **more: Any) -> HTMLResponse:
    host, number = host_of(request), min(read_count(request, "page"), MAX_PAGE)
    listed, has_more = await host.read(lambda store, people, tx: list_own(store, people, tx, number))
    values = {"listed": listed, "number": number, "has_more": has_more, "draft": "", **more}
    return page(request, "sessions.html", status, **values)


async def begin(request: Request, form: PageForm) -> Response:
    """Start a session with its first message."""
    host, text = host_of(request), _message_of(form)
    if problem := _find_problem(text):
        return await _draw_list(request, 400, problem=problem, draft=text)
    session = await host.store.create_session(WEB)
    if form.get("incognito"):
        await host.store.write(lambda tx: host.store.incognito.begin(tx, session.id))
    turn = await host.turns.say(session, text)
    if turn.is_over and not await host.store.read(lambda tx: host.store.messages.last_id(tx, session.id)):
        told = turn.problem or " ".join(turn.told)
        host.turns.forget(session.id)
        await host.store.write(lambda tx: host.store.deletions.delete(tx, session.id))  # it has no messages
        return await _draw_list(request, 400 if turn.problem else 200, problem=told, draft=text)
    return redirect(session_path(session.id))


async def show_session(request: Request) -> Response:
    before = read_count(request, "before") if "before" in request.query_params else None
    return await _draw_session(request, before)


async def _draw_session(
    request: Request, before: int | None = None, *, status: int = 200, draft: str = "", problem: str = ""
) -> HTMLResponse:
    host, session_id = host_of(request), request.path_params["session"]
    seen = await host.read(lambda store, people, tx: read_transcript(store, people, tx, session_id, before))
    listed, _ = await host.read(lambda store, people, tx: list_own(store, people, tx, 1))
    turn = host.turns.turn(session_id)
    values = {
        "seen": seen, "turn": turn, "listed": listed, "here": session_path(session_id), "draft": draft,
        "before": before, "problem": problem, "trouble": await host.trouble(session_id),
    }  # fmt: skip
    return page(request, "session.html", status, **values)


async def say(request: Request, form: PageForm) -> Response:
    host, text, session_id = host_of(request), _message_of(form), request.path_params["session"]
    session = await host.read(lambda store, people, tx: find_own(store, people, tx, session_id))
    if problem := _find_problem(text):
        return await _draw_session(request, status=400, draft=text, problem=problem)
    try:
        turn = await host.turns.say(session, text)
    except UsageError as error:
        return await _draw_session(request, status=409, draft=text, problem=error.line())
    if turn.is_over and turn.problem and not await _is_stored(host.store, session_id, turn):
        return await _draw_session(request, status=409, draft=text, problem=turn.problem)
    return redirect(session_path(session_id))


async def _is_stored(store: Store, session_id: str, turn: LiveTurn) -> bool:
    return bool(await store.read(lambda tx: store.messages.find_said(tx, session_id, turn.said)))


def _message_of(form: PageForm) -> str:
    return form.get("text", "").replace("\r\n", "\n").strip()


def _find_problem(text: str) -> str:
    """Return why a text cannot be sent; "" if it can."""
    if not text:
        return EMPTY
    return f"a message has at most {MAX_SAID_CHARS:,} characters" if len(text) > MAX_SAID_CHARS else ""


async def stop(request: Request, _: PageForm) -> Response:
    session_id = request.path_params["session"]
    host_of(request).turns.stop(session_id)
    return redirect(session_path(session_id))


async def follow(request: Request) -> Response:
    return await stream(request)


async def show_used(request: Request) -> Response:
    """Show what memory contributed to one turn: exactly the lines of its record."""
    host, session_id = host_of(request), request.path_params["session"]

    def find(store: Store, people: People, tx: Tx) -> tuple[Session, Injection]:
        session = find_own(store, people, tx, session_id)
        return session, find_injection(tx, session.id, request.path_params["turn"])

    session, found = await host.read(find)
    return page(request, "used.html", session=session, found=found, here=session_path(session_id))


async def change_title(request: Request, form: PageForm) -> Response:
    return await _run(request, f"/title {form.get('title', '')}")


async def change_incognito(request: Request, form: PageForm) -> Response:
    return await _run(request, "/memory off" if form.get("incognito") else "/memory on")


async def _run(request: Request, command: str) -> Response:
    """Run a slash command as if it were typed."""
    host, session_id = host_of(request), request.path_params["session"]
    session = await host.read(lambda store, people, tx: find_own(store, people, tx, session_id))
    turn = await host.turns.say(session, command)
    if turn.problem:
        raise UsageError(turn.problem, hint="")
    return redirect(session_path(session_id))


async def search(request: Request) -> Response:
    host, text = host_of(request), request.query_params.get("q", "").strip()[:500]
    hits: list[HistoryHit] = []
    if text:
        await host.store.index()
        hits = await host.read(partial(_find, text=text))
    return page(request, "search.html", q=text, hits=hits[:MAX_FOUND], path_of=session_path)


def _find(store: Store, people: People, tx: Tx, text: str) -> list[HistoryHit]:
    """Return the best matches in the owner's sessions, without those of guests and groups."""
    found = store.search.find(tx, text, OWNER, limit=MAX_FOUND * 2)
    scopes = {one.message.session_id: store.sessions.look_up(tx, one.message.session_id) for one in found}
    own = {key for key, session in scopes.items() if session is not None and people.scope_of(tx, session) == OWNER}
    return [one for one in found if one.message.session_id in own]


async def export(request: Request) -> Response:
    host, session_id = host_of(request), request.path_params["session"]
    form = request.query_params.get("form", "md")
    if form not in ("md", "jsonl"):
        raise UsageError("`form` must be md or jsonl", hint="Follow the links of the page")

    def write(store: Store, people: People, tx: Tx) -> str:
        session = find_own(store, people, tx, session_id)
        render, messages = (to_markdown if form == "md" else to_jsonl), store.messages.history(tx, session.id)
        return "\n".join(render(session, messages, store.compressions.all(tx, session.id)))

    text = await host.read(write)
    name = f"{NOT_PLAIN.sub('-', session_id)[:80]}.{form}"
    return PlainTextResponse(f"{text}\n", headers={"Content-Disposition": f'attachment; filename="{name}"'})


def routes() -> list[Route]:
    one = "/sessions/{session:path}"
    return [
        Route("/sessions", list_sessions),
        form_route("/sessions", begin),
        Route("/search", search),
        form_route(f"{one}/say", say),
        form_route(f"{one}/stop", stop),
        form_route(f"{one}/title", change_title),
        form_route(f"{one}/incognito", change_incognito),
        Route(f"{one}/stream", follow),
        Route(f"{one}/export", export),
        Route(f"{one}/turns/{{turn:number}}/memory", show_used),
        Route(one, show_session),
    ]
