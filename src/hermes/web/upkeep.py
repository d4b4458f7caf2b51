"""Routes of clean-up: forgetting words everywhere, merging names, deleting a session, and undelivered entries."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hermes.db.engine import Tx
from hermes.errors import StoreBusyError, UsageError
from hermes.memory.command_host import guarded
from hermes.memory.registry import NONE
from hermes.memory.values import Wording
from hermes.owner.forgetting import FoundEverywhere, find_everywhere, forget_everywhere
from hermes.owner.removal import PlannedRemoval, describe_removal, plan_removal, remove_session
from hermes.owner.status import read_outboxes
from hermes.owner.waiting import list_entries
from hermes.settings import PROVIDER
from hermes.store.people import People
from hermes.store.store import Store
from hermes.web.chat import session_path
from hermes.web.drawing import page
from hermes.web.health import KINDS
from hermes.web.host import WebHost, find_plugin
from hermes.web.routing import PageForm, form_route, host_of, redirect
from hermes.web.transcript import find_own

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
