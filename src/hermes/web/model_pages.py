"""Routes of models: the chat model, and the model of the memory server, each with a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hermes.app import App
from hermes.assembly import OPENAI, open_model
from hermes.errors import HermesError, ModelError, UsageError
from hermes.llm.model import Endpoint
from hermes.owner.models import MemoryModelState, TriedModel, try_model
from hermes.settings import API_KEY, BASE_URL, MODEL, Setting, Settings
from hermes.settings.layers import Resolved
from hermes.web.drawing import page
from hermes.web.host import WebHost
from hermes.web.routing import PageForm, form_route, host_of, keeper_of, redirect, reload_settings
from hermes.web.settings_pages import MADE, refuse_hidden, write_ours

HERE = "/settings/models"
TRIAL_SECONDS = 120.0
Which = Literal["host", "memory"]
SOURCES: Mapping[str, str] = {
    "off": "none: memory answers from the text itself",
    "host": "the model that answers in chats",
    "own": "another one, named below",
    "env": "what the variables HERMES_MEMORY_MODEL_* say",
}
SAYS: Mapping[str, str] = {"saved": "Saved. It takes effect with the next message."}
NO_ANSWER = "the model does not answer"
CHANGED = "it was changed since the page was loaded"


async def show(request: Request) -> Response:
    return await _draw(request)


async def _draw(
    request: Request,
    status: int = 200,
    problem: str = "",
    drafts: Mapping[str, PageForm] | None = None,
    tried: Mapping[str, TriedModel] | None = None,
    failed: str = "",
) -> Response:
    """Render the page. `failed` names the form whose model did not respond, so that it can be saved all the same."""
    problem = problem or await reload_settings(request)
    host = host_of(request)
    memory = await asyncio.to_thread(host.memory_model.read, host.app)
    shown = {"host": _host_fields(host.app), "memory": _memory_fields(memory)}
    return page(
        request, "models.html", status, memory=memory, problem=problem, now=shown, drafts={**shown, **(drafts or {})},
        tried=tried or {}, failed=failed, sources=SOURCES,
        done=SAYS.get(request.query_params.get("done", ""), ""),
    )  # fmt: skip


def _host_fields(app: App) -> dict[str, str]:
    """Return the fields of the chat model's form, without the key and without a password in an address."""
    get = app.settings.get
    return {"url": BASE_URL.shown(get(BASE_URL)), "name": get(MODEL), "has_key": "1" if get(API_KEY) else ""}


def _memory_fields(found: MemoryModelState) -> dict[str, str]:
    flags = {"has_key": found.has_key, "guests": found.guests}
    shown = {"source": found.source, "url": found.url, "name": found.name}
    return {**shown, **{name: "1" if value else "" for name, value in flags.items()}}


async def change_host(request: Request, form: PageForm) -> Response:
    return await _change(request, "host", form)


async def change_memory(request: Request, form: PageForm) -> Response:
    return await _change(request, "memory", form)


async def _change(request: Request, which: Which, form: PageForm) -> Response:
    """Test the model of a form, and save it if that is requested and the model responds, or regardless."""
    act, keeper = form.get("act", "save"), keeper_of(request)
    tried: dict[str, TriedModel] = {}
    async with keeper.editing:
        try:
            await keeper.refresh()
            if act != "test":
                await asyncio.to_thread(_refuse_stale, keeper.host, which, form)
            if act != "keep":
                found = await _try(keeper.host, which, form)
                tried |= {} if found is None else {which: found}
            problem = tried[which].problem if tried else ""
            if act == "test":
                return await _draw(request, drafts={which: form}, tried=tried)
            if problem:
                raise ModelError(f"{NO_ANSWER}: {problem}", hint="Nothing was changed")
            await asyncio.to_thread(_keep, keeper.host, which, form)
            await keeper.refresh()
        except HermesError as error:
            failed = which if isinstance(error, ModelError) and act == "save" else ""
            return await _draw(request, 400, error.line(), {which: form}, failed=failed)
    return redirect(f"{HERE}?done=saved")


def _refuse_stale(host: WebHost, which: Which, form: PageForm) -> None:
    now = _host_fields(host.app) if which == "host" else _memory_fields(host.memory_model.read(host.app))
    seen = {name: form.get(f"seen:{name}", value) for name, value in now.items()}
    if changed := [name for name in now if now[name] != seen[name]]:
        stale = ", ".join(f"{name} is {now[name] or 'empty'} now" for name in changed)
        raise UsageError(f"{CHANGED}: {stale}", hint="What you typed is still in the form; send it again to keep it")


async def _try(host: WebHost, which: Which, form: PageForm) -> TriedModel | None:
    """Test the model of a form; return None if the form names no model. Raises ModelError after a timeout."""
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            if which == "memory":
                given = _memory_given(form)
                console = host.memory_model
                return None if given["source"] == "off" else await asyncio.to_thread(console.test, host.app, given)
            values = {row.key: Resolved(value, MADE, MADE) for row, value in _host_values(host.app, form)}
            found = {**host.app.settings.found, **values}
            model = open_model(replace(host.app, settings=Settings(found)))
            return None if model is None else await try_model(model)
    except TimeoutError:
        raise ModelError(f"the model did not answer within {TRIAL_SECONDS:.0f} s", hint="") from None


def _host_values(app: App, form: PageForm) -> list[tuple[Setting[Any], str]]:
    """Return the settings that a chat model's form requests. A key is never sent to another address than it was given
    for."""
    get, given = app.settings.get, form.get("url", "").strip()
    url = get(BASE_URL) if given == BASE_URL.shown(get(BASE_URL)) else BASE_URL.parse(refuse_hidden("url", given), MADE)
    stays = Endpoint.parse(url or OPENAI).netloc == Endpoint.parse(get(BASE_URL) or OPENAI).netloc
    kept = get(API_KEY) if stays and not form.get("forget_key") else ""
    name = MODEL.parse(form.get("name", "").strip(), MADE)
    return [(BASE_URL, url), (MODEL, name), (API_KEY, API_KEY.parse(form.get("key", "").strip(), MADE) or kept)]


def _memory_given(form: PageForm) -> dict[str, Any]:
    source = form.get("source", "")
    if source not in SOURCES:
        raise UsageError(f"'{source[:40]}' is not a model source", hint=f"There are {', '.join(SOURCES)}")
    fields = {name: form.get(name, "").strip() for name in ("url", "name", "key")}
    return {"source": source, **fields, "guests": bool(form.get("guests"))}


def _keep(host: WebHost, which: Which, form: PageForm) -> None:
    """Save a form. Blocks. A memory server that uses the chat model gets the new one."""
    if which == "memory":
        host.memory_model.save(host.app, _memory_given(form))
        return
    get = host.app.settings.get
    write_ours(host, {row.key: value for row, value in _host_values(host.app, form) if value != get(row)})
    memory = host.memory_model.read(host.app)
    if memory.source == "host" and host.app.home.path == host.app.home.shared:
        now = App.load(host.app.home.profile)
        host.memory_model.save(now, {"source": "host", "guests": memory.guests})


def routes() -> list[Route]:
    return [
        Route(HERE, show),
        form_route(f"{HERE}/host", change_host),
        form_route(f"{HERE}/memory", change_memory),
    ]
