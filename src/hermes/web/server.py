"""Serves the page until stopped: connects store, memory and turns, and guards every request.

Questions to memory: what it finds, with sources, and an answer composed from that. Nothing is stored.

Routes of clean-up: forgetting words everywhere, merging names, deleting a session, and undelivered entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hermes.agent.agent import Agent
from hermes.agent.leftovers import LEFTOVERS_INTERVAL_SECONDS, process_leftovers
from hermes.agent.loop import Responder, converse
from hermes.agent.offline import NOT_KEPT, OfflineModel
from hermes.agent.tools import Toolbox
from hermes.agent.transcript import ScratchTranscript
from hermes.agent.turn import read_memory
from hermes.app import App
from hermes.db.engine import Tx
from hermes.errors import HermesError, StoreBusyError, UsageError
from hermes.events import Failed, Replied, TurnEvent
from hermes.gateway.agent_cache import NOBODY
from hermes.http_server import GuestServer, listen
from hermes.memory.offered import storable_parts
from hermes.memory.plugin_host import guarded
from hermes.memory.registry import NONE
from hermes.memory.values import Wording
from hermes.owner.forgetting import FoundEverywhere, find_everywhere, forget_everywhere
from hermes.owner.models import MemoryModelConsole
from hermes.owner.sessions import PlannedRemoval, describe_removal, plan_removal, remove_session
from hermes.owner.status import read_outboxes
from hermes.owner.waiting import list_entries
from hermes.owner.web_key import is_web_key
from hermes.scope import OWNER
from hermes.settings import PROVIDER
from hermes.store.injections import InjectedPart
from hermes.store.people import People
from hermes.store.store import Store
from hermes.types import Draft, Session
from hermes.web import api, chat, health, model_pages, news, people_pages, session_timeline, settings_pages
from hermes.web import memory as memory_routes
from hermes.web.chat import session_path
from hermes.web.door import ENTER, LINK_USED, STATIC, WebDoor
from hermes.web.drawing import HEADERS, HERE, page
from hermes.web.health import KINDS
from hermes.web.host import HostKeeper, WebHost, find_plugin
from hermes.web.routing import PageForm, form_route, host_of, redirect, refuse_request, show_error
from hermes.web.transcript import find_own

ASKING, WEB = "web-ask", "web"
MAX_QUESTION_CHARS = 2000
ANSWER_SECONDS = 120.0
TOO_LATE = "The model did not answer in time; what memory found is below."


class AnsweredQuestion(Struct, frozen=True):
    """An answer, or the reason for a missing one, with the evidence that memory found."""

    text: str
    problem: str = ""
    parts: Sequence[InjectedPart] = ()
    missed: str = ""
    by: str = ""
    """The model that answered; "" if memory answered without one."""


async def ask_memory(host: WebHost, question: str) -> AnsweredQuestion:
    """Recall memories for a question and answer it. Memory does not learn the question."""
    session, draft = Session(ASKING, WEB, host.now), Draft("user", question, author_is_owner=True)
    async with host.turns.agents.use(session, ASKING, OWNER, NOBODY) as agent:
        reading = await read_memory(agent, [draft])
        model, is_offline = agent.model, isinstance(agent.model, OfflineModel)
        if isinstance(model, OfflineModel):
            whole = reading.found.missed is None
            model = replace(model, fate=NOT_KEPT, recalled=reading.found.lines, is_whole=whole)
        transcript = ScratchTranscript(reading.prompt, [draft], host.now, reading.recalled)
        ending = await _run(Responder(model, Toolbox([]), 1), transcript)
    parts = storable_parts(reading.found.recalled.parts)
    answer = AnsweredQuestion("", TOO_LATE, parts, reading.found.missed or "", "" if is_offline else model.name)
    if isinstance(ending, Replied):
        return replace(answer, text=ending.text, problem="")
    return replace(answer, problem=ending.message) if isinstance(ending, Failed) else answer


async def _run(speaker: Responder, transcript: ScratchTranscript) -> TurnEvent | None:
    """Return the last event of the answer; None after a timeout."""
    last: TurnEvent | None = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            async with aclosing(converse(speaker, transcript, "", asyncio.Event())) as events:
                async for event in events:
                    last = event
    except TimeoutError:
        return None
    return last


async def show_asking(request: Request) -> Response:
    host, question = host_of(request), request.query_params.get("q", "").strip()
    if len(question) > MAX_QUESTION_CHARS:
        raise UsageError(f"a question has at most {MAX_QUESTION_CHARS:,} characters", hint="Ask for less at once")
    answered = await ask_memory(host, question) if question else None
    return page(request, "ask.html", q=question, answered=answered, trouble=await host.trouble())


def question_routes() -> list[Route]:
    return [Route("/memory/ask", show_asking)]


MAX_SHOWN, MAX_WAITING = 60, 50
MAX_WORDS_CHARS = 500


class SearchedPlace(Struct, frozen=True):
    """A searched place, and a summary of the matches."""

    name: str
    found: str


def _wording(text: str) -> Wording:
    """Return the words of a text that is not blank, or of the beginning of a long one. Never empty, because an empty
    query matches everything."""
    if len(text) > MAX_WORDS_CHARS:
        text = text[:MAX_WORDS_CHARS].rsplit(maxsplit=1)[0]
    return Wording(tuple(text.split()))


async def show_words(request: Request) -> Response:
    """Show all entries that contain every word, before they are forgotten."""
    host, text = host_of(request), request.query_params.get("q", "").strip()
    if not text:
        return page(request, "forget.html", q="", found=None, items=[], hidden=0, places=[], remarks=[], report=None)
    found, remarks = await asyncio.to_thread(_look, host, _wording(text))
    return await _draw_found(request, text, found, remarks)


def _look(host: WebHost, wording: Wording) -> tuple[FoundEverywhere, list[str]]:
    return find_everywhere(host.app, find_plugin(host), wording)


async def _draw_found(
    request: Request, text: str, found: FoundEverywhere, remarks: list[str], report: list[str] | None = None
) -> HTMLResponse:
    """Render the matches. Matches that may not be the owner's, such as a guest's words or a reply to anyone, are only
    counted."""
    host = host_of(request)
    own = {"", *(one.name for one in await host.book.portraits() if not one.is_agent)}
    unique = {(one.kind, one.text): one for one in found.at_provider.items if one.about.partition(",")[0] in own}
    hidden = sum(one.about.partition(",")[0] not in own for one in found.at_provider.items)
    items = list(unique.values())[:MAX_SHOWN]
    return page(
        request, "forget.html", q=text, found=found, items=items, more=len(unique) - len(items), hidden=hidden,
        places=_places(host, found), remarks=[*found.at_provider.stays, *remarks], report=report,
    )  # fmt: skip


def _places(host: WebHost, found: FoundEverywhere) -> list[SearchedPlace]:
    """Return every searched place."""
    name = host.app.settings.get(PROVIDER)
    kinds: dict[str, int] = {}
    for one in found.at_provider.items:
        kinds[one.kind] = kinds.get(one.kind, 0) + 1
    held = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in kinds.items())
    places = [] if name == NONE else [SearchedPlace(name.capitalize(), held or "nothing")]
    for title, kept in (("this home", found.here), *((f"profile {key}", one) for key, one in found.profiles.items())):
        told = (_count(len(kept.messages), "message", "sent to memory"), _count(len(kept.entries), "entry", "waiting"))
        places.append(SearchedPlace(title, ", ".join(filter(None, told)) or "nothing"))
    return [*places, SearchedPlace("notes, and what was typed at terminals", "searched too; notes are named below")]


def _count(number: int, name: str, state: str) -> str:
    """Return "2 entries waiting", or "" for none."""
    several = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
    return f"{number} {name if number == 1 else several} {state}" if number else ""


async def forget_words(request: Request, form: PageForm) -> Response:
    host, text = host_of(request), form.get("q", "").strip()
    if not text:
        raise UsageError("no words were given", hint="Give words that all occur in what should be forgotten")

    def run() -> tuple[FoundEverywhere, list[str], list[str]]:
        wording, plugin = _wording(text), find_plugin(host)
        found, remarks = find_everywhere(host.app, plugin, wording)
        return found, remarks, forget_everywhere(host.app, plugin, wording, found)

    found, remarks, stays = await asyncio.to_thread(run)
    return await _draw_found(request, text, found, remarks, stays)


async def show_merge(request: Request) -> Response:
    host, query = host_of(request), request.query_params
    peer, into = query.get("peer", ""), query.get("into", "")

    def look() -> tuple[list[str], str]:
        plugin = find_plugin(host)
        if plugin is None:
            return [], ""
        peers = list(guarded(plugin.name, "peers", plugin.peers))
        preview = guarded(plugin.name, "preview_merge", lambda: plugin.preview_merge(peer, into)) if peer else ""
        return peers, preview

    peers, preview = await asyncio.to_thread(look)
    merged = query.get("done") == "merged"
    return page(request, "merge.html", peers=peers, preview=preview, peer=peer, into=into, merged=merged)


async def merge(request: Request, form: PageForm) -> Response:
    host = host_of(request)

    def run() -> None:
        if (plugin := find_plugin(host)) is not None:
            guarded(plugin.name, "merge", lambda: plugin.merge(form.get("peer", ""), form.get("into", "")))

    await asyncio.to_thread(run)
    return redirect("/memory/merge?done=merged")


def _plan(store: Store, people: People, tx: Tx, session_id: str) -> PlannedRemoval:
    return plan_removal(store, tx, find_own(store, people, tx, session_id).id)


async def show_deletion(request: Request) -> Response:
    host, session_id = host_of(request), request.path_params["session"]
    planned = await host.read(partial(_plan, session_id=session_id))
    what, here = describe_removal(planned.deletion), session_path(session_id)
    return page(request, "delete.html", planned=planned, what=what, here=here)


async def delete_session(request: Request, form: PageForm) -> Response:
    host, session_id = host_of(request), request.path_params["session"]
    planned = await host.read(partial(_plan, session_id=session_id))
    host.turns.stop(session_id)
    await remove_session(host.app, host.store, planned, everywhere=bool(form.get("everywhere")))
    host.turns.forget(session_id)
    with suppress(StoreBusyError):  # the file is in use: the words leave it with later writes
        await host.store.tidy()
    host.memory.start_deliveries()
    return redirect("/sessions")


async def show_waiting(request: Request) -> Response:
    """Show entries that were not delivered to memory yet."""
    host = host_of(request)

    def look(store: Store, people: People, tx: Tx) -> dict[str, Any]:
        return {
            "outboxes": read_outboxes(tx, store.clock.now()),
            "waiting": list_entries(store, people, tx, "waiting", MAX_WAITING),
        }

    seen = await host.read(look)
    provider = host.memory.provider
    told = {} if provider is None else await provider.status()
    return page(request, "waiting.html", **seen, told=told, kinds=KINDS, trouble=await host.trouble())


def routes() -> list[Route]:
    return [
        Route("/memory/forget", show_words),
        form_route("/memory/forget", forget_words),
        Route("/memory/merge", show_merge),
        form_route("/memory/merge", merge),
        Route("/memory/waiting", show_waiting),
        Route("/sessions/{session:path}/delete", show_deletion),
        form_route("/sessions/{session:path}/delete", delete_session),
    ]


log = logging.getLogger("hermes.web")
DRAIN_SECONDS = 5
TEND_SECONDS = 60.0
Announce = Callable[[str], None]
"""Called with each one-time link."""


class Guarded:
    """Middleware that checks access before any route and adds our headers to every response."""

    def __init__(self, app: ASGIApp, door: WebDoor) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._door.refuse(scope["method"], scope["path"], Headers(scope=scope))
        if refused is not None:
            scope["app"] = self._app
            request = Request(scope)
            answer = refuse_request(request, "refused.html", refused.status, refused.why)
            await answer(scope, receive, _with_headers(scope["path"], send))
            return
        await self._app(scope, receive, _with_headers(scope["path"], send))


def _with_headers(path: str, send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Cache-Control"] = "no-cache" if path.startswith(STATIC) else "no-store"
        await send(message)

    return send_with_headers


def make_app(keeper: HostKeeper, announce: Announce) -> ASGIApp:
    """Return the page as an ASGI application. `announce` gets a new link whenever the previous one was used."""
    door, connects = keeper.host.door, settings_pages.Connects()

    async def enter(request: Request) -> Response:
        if not door.take_link(request.query_params.get("once", "")):
            return page(request, "refused.html", 401, problem=LINK_USED)
        announce(door.new_link())
        is_from_elsewhere = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
        answer = page(request, "entered.html") if is_from_elsewhere else redirect("/")
        answer.headers["Set-Cookie"] = door.header()
        return answer

    app = Starlette(
        routes=[
            Route(ENTER, enter),
            Mount("/static", StaticFiles(directory=HERE / "static")),
            *news.routes(),
            *question_routes(),
            *routes(),
            *memory_routes.routes(),
            *session_timeline.routes(),
            *health.routes(),
            *api.routes(),
            *chat.routes(),
            *settings_pages.routes(),
            *people_pages.routes(),
            *model_pages.routes(),
            *settings_pages.endpoints(lambda: keeper.host, connects),
        ],
        exception_handlers=dict.fromkeys((HermesError, HTTPException, ClientDisconnect, Exception), show_error),
    )
    app.state.keeper, app.state.door, app.state.connects = keeper, door, connects
    return Guarded(app, door)


async def serve(
    app: App, store: Store, memory_model: MemoryModelConsole, port: int, announce: Announce, stopping: asyncio.Event
) -> None:
    """Serve on loopback until `stopping` is set. Raises UsageError if the port is in use."""
    with listen("127.0.0.1", port, "choose another --port") as listener:
        door = WebDoor(listener.getsockname()[1], lambda given: is_web_key(app.home, given))
        keeper = HostKeeper(app, store, door, memory_model)
        server = GuestServer(make_app(keeper, announce), drain=DRAIN_SECONDS)
        announce(door.new_link())
        serving = asyncio.create_task(server.serve_on(listener))
        waiting = asyncio.create_task(stopping.wait())
        tending = asyncio.create_task(_maintain(keeper))
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            tending.cancel()
            await keeper.host.turns.close()
            server.end()
            await asyncio.wait({serving})
            await keeper.close()


async def _maintain(keeper: HostKeeper) -> None:
    """Evict idle agents, reload changed settings, and review and title sessions that an earlier start left behind."""
    started = keeper.host.now
    looked_at = -LEFTOVERS_INTERVAL_SECONDS

    def use(session: Session) -> AbstractAsyncContextManager[Agent]:
        return keeper.host.agents.use(session, session.id, OWNER, NOBODY)

    while True:
        if (now := asyncio.get_running_loop().time()) >= looked_at + LEFTOVERS_INTERVAL_SECONDS:
            looked_at = now
            await process_leftovers(keeper.host.store, lambda session: session.source == chat.WEB, use, started)
        await asyncio.sleep(TEND_SECONDS)
        keeper.host.agents.evict()
        try:
            await keeper.refresh()
        except HermesError as error:
            log.warning("web: the changed settings cannot be used: %s", error.line())
