"""Routes of settings: the memory provider, its use, and every setting that the command line knows.

A form carries the values that it was rendered with, so that it never overwrites a change by somebody else.

Sign-in to the memory provider: the link beside its choice, and the endpoints that any page may use.

The link has a separate page, which scripts fetch every two seconds. Without scripts, a person reloads it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hermes.app import App
from hermes.config_file import write_setting
from hermes.errors import HermesError, NotFoundError, ProviderError, SettingsError, UsageError
from hermes.memory.connect_routes import connect_routes, refuse_foreign
from hermes.memory.plugin_host import guarded, make_plugin
from hermes.memory.provider import Connect, ConnectStatus, SettingInForce
from hermes.memory.registry import NONE, provider_names
from hermes.owner.status import quiet_host
from hermes.redaction import HIDDEN
from hermes.settings import PROVIDER, TABLE, find_setting
from hermes.settings.kinds import in_words
from hermes.web.api import TOKEN
from hermes.web.drawing import page
from hermes.web.host import WebHost, find_plugin
from hermes.web.routing import PageForm, form_route, host_of, keeper_of, redirect, reload_settings

HERE = "/settings/connect"


class ShownConnect(Struct, frozen=True):
    """The state of a sign-in. `url` is the provider's page while the sign-in is pending."""

    name: str
    state: str
    detail: str = ""
    url: str = ""

    @property
    def mark(self) -> str:
        """The version of the state; a page that shows it needs no update."""
        return f"{self.name} {self.state} {self.detail}"


class Connects:
    """The sign-ins of this process, one per profile and provider. They remember pending sign-ins."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Connect | None] = {}
        self._lock = threading.Lock()
        self.urls: dict[str, str] = {}
        """The provider's page that was opened last, by the provider's name."""

    def find(self, app: App, profile: str, name: str) -> Connect | None:
        """Return the sign-in of a profile ("" is the page's profile); None if the provider has none. Blocks. Raises
        ProviderError, and NotFoundError for an unknown profile."""
        own = app.home.profile or "default"
        key = (profile or own, name)
        with self._lock:
            if key not in self._made:
                found = app if key[0] == own else App.load(key[0])
                plugin = make_plugin(name, found.home.plugins, quiet_host(found))
                self._made[key] = guarded(name, "connect", plugin.connect)
            return self._made[key]


def _connects(request: Request) -> Connects:
    found: Connects = request.app.state.connects
    return found


async def look(request: Request, name: str) -> ShownConnect | None:
    """Return the state of this profile's sign-in; None for a provider without one."""
    if name == NONE:
        return None
    connects, app = _connects(request), host_of(request).app

    def read() -> ConnectStatus | None:
        connect = connects.find(app, "", name)
        return None if connect is None else connect.status()

    try:
        status = await asyncio.to_thread(read)
    except HermesError as error:
        return ShownConnect(name, "error", error.line())
    if status is None:
        return None
    url = connects.urls.get(name, "") if status.state == "waiting" else ""
    return ShownConnect(name, status.state, status.detail, url)


async def show(request: Request) -> Response:
    """Show the link. Responds with 204 to a script whose page shows the present state."""
    await reload_settings(request)
    host = host_of(request)
    shown = await look(request, host.app.settings.get(PROVIDER))
    if shown is not None and request.query_params.get("seen") == shown.mark and "hx-request" in request.headers:
        return Response(status_code=204)
    return _draw(request, shown)


def _draw(request: Request, shown: ShownConnect | None, **more: Any) -> Response:
    return page(request, "connect.html", connect=shown, **more)


async def begin(request: Request, _: PageForm) -> Response:
    """Start a sign-in and redirect to the provider's page in a new window."""
    app = host_of(request).app
    name, connects = app.settings.get(PROVIDER), _connects(request)

    def run() -> str:
        if (connect := connects.find(app, "", name) if name != NONE else None) is None:
            raise NotFoundError(f"the memory provider {name!r} has no sign-in", hint="Choose another one")
        return connect.begin("web")

    url = connects.urls[name] = await asyncio.to_thread(run)
    if not url.startswith(("https://", "http://")):
        raise ProviderError(f"{name} returned no web address for the sign-in", hint="")
    return page(request, "leave.html", url=url)


async def disconnect(request: Request, _: PageForm) -> Response:
    app = host_of(request).app
    name, connects = app.settings.get(PROVIDER), _connects(request)

    def run() -> None:
        if (connect := connects.find(app, "", name) if name != NONE else None) is not None:
            connect.disconnect()

    await asyncio.to_thread(run)
    return redirect("/settings")


def sign_in_routes() -> list[Route]:
    return [
        Route(HERE, show),
        form_route(HERE, begin),
        form_route("/settings/disconnect", disconnect),
    ]


def endpoints(host: Callable[[], WebHost], connects: Connects) -> list[Route]:
    """Return the endpoints of all providers and profiles. Changes need the CSRF token in a header."""

    def admit(request: Request) -> None:
        refuse_foreign(request)
        request.app.state.door.check_token(request.headers.get(TOKEN, ""))

    return connect_routes(lambda profile, name: connects.find(host().app, profile, name), admit)


OURS = "hermes"
"""The settings of config.yaml; a provider's table has the provider's name."""
SET, SEEN = "set:", "seen:"
"""Prefixes of a setting's name in a form: the requested value, and the value that the form was rendered with."""
MADE = "the page"
MAX_KEY_CHARS = 80
SAYS: Mapping[str, str] = {"saved": "Saved. It takes effect with the next message.", "same": "Nothing was changed."}
ALONE = "Nothing is remembered but the built-in notes."


class ProviderChoice(Struct, frozen=True):
    """The available providers, the one in force, and its summary."""

    names: Sequence[str]
    chosen: str
    summary: str
    fixed: str = ""
    """The environment variable that chooses the provider and so prevents a change on the page; "" if none does."""


def read_choice(host: WebHost) -> ProviderChoice:
    """Return the choice of providers. Blocks, because it loads them."""
    settings, names = host.app.settings, provider_names(host.app.home.plugins)
    chosen = settings.get(PROVIDER)
    try:
        plugin = find_plugin(host)
        summary = ALONE if plugin is None else plugin.summary
    except ProviderError as error:
        summary = error.line()
    return ProviderChoice(sorted({*names, chosen}, key=lambda name: name == NONE), chosen, summary)


def read_rows(host: WebHost, table: str) -> list[SettingInForce]:
    """Return the settings of a table with their values. Blocks. Raises UsageError for an unknown table."""
    settings = host.app.settings
    if table == OURS:
        return [SettingInForce(row, row.shown(settings.get(row)), settings.where(row)) for row in TABLE]
    plugin = find_plugin(host)
    if plugin is None or plugin.name != table:
        raise UsageError(f"there is no table of settings '{table[:60]}'", hint="Follow the links of the page")
    return list(guarded(table, "settings_in_force", plugin.settings_in_force))


def is_fixed(host: WebHost, row: SettingInForce) -> bool:
    """Return True if an environment variable sets a setting of config.yaml, so that the file cannot."""
    return row.setting.env_wins and host.app.settings.origin(row.setting) == "environment"


def find_changes(rows: Sequence[SettingInForce], form: PageForm) -> dict[str, str]:
    """Return the settings that a form changes. Raises UsageError if one was changed since the form was rendered."""
    now, changed = {row.setting.key: row for row in rows}, dict[str, str]()
    for name, value in form.items():
        key = name.removeprefix(SET)
        if key == name:
            continue
        row = now.get(key)
        if row is not None and row.setting.secret:
            changed |= {key: value} if value else {}
            continue
        standing = "" if row is None else in_words(row.value)
        if value.strip() == form.get(f"{SEEN}{key}", standing):
            continue
        if standing not in (form.get(f"{SEEN}{key}", standing), value.strip()):
            hint = "Your value is still in the form; send it again to set it all the same"
            raise UsageError(f"{key} was changed since the page was loaded: it is {standing or 'empty'} now", hint=hint)
        changed[key] = refuse_hidden(key, value.strip())
    return changed


def refuse_hidden(key: str, value: str) -> str:
    """Return a value that was typed whole. Raises UsageError if a part of it is hidden."""
    if HIDDEN in value:
        raise UsageError(f"{key} still has {HIDDEN} where a password is hidden", hint="Type the whole value")
    return value


async def save(request: Request, table: str, form: PageForm) -> bool:
    """Save the changes of a form; return False without changes. Raises HermesError, and then changes nothing."""
    keeper = keeper_of(request)
    async with keeper.editing:
        await keeper.refresh()
        host = keeper.host
        rows = await asyncio.to_thread(read_rows, host, table)
        if not (changed := find_changes(rows, form)):
            return False
        await asyncio.to_thread(write_ours if table == OURS else _write_providers, host, changed)
        await keeper.refresh()
    return True


def write_ours(host: WebHost, changed: Mapping[str, str]) -> None:
    """Write settings to config.yaml. Raises SettingsError before anything is written."""
    parsed = [(row, row.parse(value, MADE)) for row, value in ((find_setting(key), changed[key]) for key in changed)]
    for row, value in parsed:
        if row.env_wins and host.app.settings.origin(row) == "environment":
            hint = f"Start `hermes web` without {row.env} to change it here"
            raise SettingsError(f"{row.key} comes from {host.app.settings.where(row)}, which wins", hint=hint)
        if row is PROVIDER and value not in (names := provider_names(host.app.home.plugins)):
            raise SettingsError(f"there is no memory provider '{value[:60]}'", hint=f"Known: {', '.join(names)}")
    for row, value in parsed:
        write_setting(host.app.home.config_file, row, value)


def _write_providers(host: WebHost, changed: Mapping[str, str]) -> None:
    if (plugin := find_plugin(host)) is not None:
        guarded(plugin.name, "save_config", lambda: plugin.save_config(changed))


async def show_memory(request: Request) -> Response:
    return await _draw_memory(request)


async def _draw_memory(
    request: Request, status: int = 200, problem: str = "", drafts: PageForm | None = None
) -> Response:
    """Render the page of memory settings."""
    problem = problem or await reload_settings(request)
    host = host_of(request)
    choice = await asyncio.to_thread(read_choice, host)
    rows: list[SettingInForce] = []
    try:
        rows = [] if choice.chosen == NONE else await asyncio.to_thread(read_rows, host, choice.chosen)
    except HermesError as error:
        problem = problem or error.line()
    [provider] = [one for one in read_rows(host, OURS) if one.setting is PROVIDER]
    return _page(
        request, "settings.html", status, choice=choice, rows=[one for one in rows if one.question], provider=provider,
        fixed=is_fixed(host, provider), connect=await look(request, choice.chosen),
        problem=problem, drafts=drafts or {}, trouble=await host.trouble(),
    )  # fmt: skip


async def show_all(request: Request) -> Response:
    return await _draw_all(request, request.query_params.get("table", OURS))


async def _draw_all(
    request: Request, table: str, status: int = 200, problem: str = "", drafts: PageForm | None = None
) -> Response:
    problem = problem or await reload_settings(request)
    host = host_of(request)
    rows = await asyncio.to_thread(read_rows, host, table)
    chosen = host.app.settings.get(PROVIDER)
    tables = [OURS] if chosen == NONE else [OURS, chosen]
    key = request.query_params.get("key", "")[:MAX_KEY_CHARS]
    row = next((one for one in rows if one.setting.key == key), None)
    if key and row is None:
        problem = problem or f"there is no setting '{key}' in {table}"
    return _page(
        request, "all_settings.html", status, tables=tables, table=table, rows=rows, row=row, problem=problem,
        drafts=drafts or {},
    )  # fmt: skip


def _page(request: Request, template: str, status: int, **values: Any) -> HTMLResponse:
    done = SAYS.get(request.query_params.get("done", ""), "")
    return page(request, template, status, **{"done": done, "words": in_words, **values})


async def change_memory(request: Request, form: PageForm) -> Response:
    """Save the provider or its settings."""
    table = form.get("table", "")
    try:
        changed = await save(request, table, form)
    except HermesError as error:
        return await _draw_memory(request, 400, error.line(), form)
    return redirect(f"/settings?done={'saved' if changed else 'same'}")


async def change_one(request: Request, form: PageForm) -> Response:
    """Save any setting of a table."""
    table = form.get("table", "")
    try:
        changed = await save(request, table, form)
    except HermesError as error:
        return await _draw_all(request, table, 400, error.line(), form)
    return redirect(f"/settings/all?table={table}&done={'saved' if changed else 'same'}")


def routes() -> list[Route]:
    return [
        Route("/settings", show_memory),
        form_route("/settings", change_memory),
        Route("/settings/all", show_all),
        form_route("/settings/all", change_one),
        *sign_in_routes(),
    ]
